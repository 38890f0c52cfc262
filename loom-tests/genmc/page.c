// A page is installed while a thread looks up an entry on it without the vacant stack, as a drain or
// a made-up id does. A thread that finds the page finds its entries initialised.
//
// run:
// seen: PAGE_RELAXED
#include "wheel.h"
#include <stdlib.h>

struct entry {
  u32 value;
  _Atomic u32 state;
};
static struct entry *_Atomic page;
static _Atomic u32 base;

static void *install(void *unused) {
  struct entry *made = malloc(sizeof *made), *absent = 0;
  made->value = 1; // before the page is published
  STORE(made->state, STATE(0, 0), RELAXED);
  if (!TRY(page, absent, made, ORDER(PAGE_RELAXED, ACQ_REL), RELAXED)) return unused;
  u32 generation = LOAD(base, RELAXED);
  STORE(made->state, STATE(generation, 1), RELEASE);
  return unused;
}

// With pages of the allocator.
static void *look_up(void *unused) {
  struct entry *found = LOAD(page, ACQUIRE);
  if (!found) return unused;
  assert(found->value == 1);
  u32 seen = LOAD(found->state, ACQUIRE);
  assert(!IS_ARMED(seen));
  return unused;
}

int main(void) { run(install, look_up, 0); }
