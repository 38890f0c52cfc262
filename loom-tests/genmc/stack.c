// The vacant entries of a slab with one page of two entries: two threads take them from the stack,
// or from what remains of the page, use them and give them back, or trim the page away and put it
// in again. No entry has two holders, no generation is used twice, and none is lost.
//
// run: -DFIRST=KEEP -DSECOND=USE
// run: -DFIRST=KEEP -DSECOND=KEEP
// run: -DFIRST=USE -DSECOND=TRIM
// run: -DFIRST=HOARD -DSECOND=USE
// run: -DFIRST=TRIM_AND_USE -DSECOND=USE
// run: -DFIRST=USE -DSECOND=USE -DBEGIN=FRESH
// run: -DFIRST=USE -DSECOND=TRIM -DBEGIN=FRESH
// run: -DFIRST=USE -DSECOND=USE -DBEGIN=ABSENT
// seen: HEAD_RELAXED
// seen: REMAINDER_RELAXED
// seen: PAGE_OUT_RELAXED
// seen: RETURNED_NOT_BUMPED
// seen: HOARDED_NOT_BUMPED
#include "wheel.h"
#if __has_include(<genmc.h>)
#include <genmc.h>
#endif

// What a thread does, and how the entries lie when both begin.
enum { USE = 1, KEEP, TRIM, HOARD, TRIM_AND_USE, STACKED, FRESH, ABSENT };
#ifndef BEGIN
#define BEGIN STACKED
#endif

enum { PAGE = 2, LAST = 15, USES = 24 };
// An entry's vacant state, or the head of the stack: a generation above an index.
#define WORD(generation, index) ((u32)(generation) << 4 | (u32)(index))
#define GENERATION_OF(word) ((word) >> 4)
#define INDEX(word) ((word) & 15u)
#define NOTHING WORD(0, LAST)

static _Atomic u32 states[PAGE], stack, remainder, page, base;
// Plain: two threads that hold an entry at a time, or one after the other without order, race here.
static u32 holder[PAGE];
static u32 used[PAGE * USES];
#define HEAD_ORDER ORDER(HEAD_RELAXED, ACQ_REL)

// Executions in which a thread tries more often than this tell nothing new.
enum { TRIES = 4 };
#if __has_include(<genmc.h>)
#define AGAIN(tries) __VERIFIER_assume(++(tries) <= TRIES)
#else
#define AGAIN(tries) ++(tries)
#endif

static u32 look_at(u32 index) { return LOAD(states[index], ACQUIRE); }

// AtomicEntryState::chain
static void chain(u32 index, u32 generation, u32 next) {
  u32 seen = look_at(index), tries = 0;
  while (!TRY(states[index], seen, WORD(generation, next), ACQ_REL, ACQUIRE)) AGAIN(tries);
}

// Slab::pop_rounds with Slab::walk: how many, above the index of the first, or NOTHING
static u32 pop(u32 most) {
  u32 head = LOAD(stack, ACQUIRE);
  for (u32 tries = 0; INDEX(head) != LAST; AGAIN(tries)) {
    u32 seen = look_at(INDEX(head)), below = head, count = 1;
    bool moved = GENERATION_OF(seen) != GENERATION_OF(head);
    while (!moved) {
      u32 next = INDEX(seen);
      if (next == LAST) {
        below = NOTHING;
        break;
      }
      // What is read through a head that has moved on may be anything.
      if (next >= PAGE || GENERATION_OF(look_at(next)) & 1) {
        moved = true;
      } else if (count == most) {
        below = WORD(GENERATION_OF(look_at(next)), next);
        break;
      } else {
        seen = look_at(next);
        count++;
      }
    }
    u32 top = INDEX(head);
    if (TRY(stack, head, moved ? head : below, HEAD_ORDER, ACQUIRE) && !moved)
      return WORD(count, top);
  }
  return NOTHING;
}

// Slab::release, of a chain from `top` to `last`, whose state points to `after`
static void push(u32 top, u32 last, u32 after) {
  u32 head = LOAD(stack, ACQUIRE);
  for (u32 tries = 0;; AGAIN(tries)) {
    if (after != INDEX(head)) {
      after = INDEX(head);
      chain(INDEX(last), GENERATION_OF(last), after);
    }
    if (TRY(stack, head, top, HEAD_ORDER, ACQUIRE)) return;
  }
}

// PageTable::reinit
static void reinit(u32 first, u32 count) {
  u32 generation = LOAD(base, RELAXED);
  for (u32 index = first; index < first + count; index++)
    STORE(states[index], WORD(generation, index + 1 < PAGE ? index + 1 : LAST), RELEASE);
}

// PageRemainder::take
static u32 take_remainder(u32 most) {
  u32 seen = LOAD(remainder, RELAXED);
  for (u32 tries = 0;; AGAIN(tries)) {
    u32 left = GENERATION_OF(seen), count = left < most ? left : most, first = INDEX(seen);
    if (!count) return NOTHING;
    if (TRY(remainder, seen, WORD(left - count, first + count), ORDER(REMAINDER_RELAXED, ACQUIRE), RELAXED))
      return WORD(count, first);
  }
}

// Slab::vacant_rounds
static u32 vacant(u32 most) {
  u32 rounds = pop(most);
  if (rounds != NOTHING) return rounds;
  rounds = take_remainder(most);
  if (rounds != NOTHING) reinit(INDEX(rounds), GENERATION_OF(rounds));
  return rounds;
}

// Slab::take_rounds with Slab::grow_rounds and PageTable::install; the page is the only one
static u32 take_rounds(u32 most) {
  u32 rounds = vacant(most), absent = 0;
  if (rounds != NOTHING) return rounds;
  if (!TRY(page, absent, 1, ACQ_REL, RELAXED)) return NOTHING;
  reinit(0, most);
  if (most == PAGE) return WORD(most, 0);
  u32 seen = LOAD(remainder, RELAXED), left = WORD(PAGE - most, most);
  if (GENERATION_OF(seen) || !TRY(remainder, seen, left, ORDER(REMAINDER_RELAXED, RELEASE), RELAXED)) {
    reinit(most, PAGE - most);
    u32 generation = GENERATION_OF(look_at(most));
    push(WORD(generation, most), WORD(generation, PAGE - 1), LAST);
  }
  return WORD(most, 0);
}

// A timer that comes and goes in an entry that is held: Shard::try_arm_and_file, Shard::end
static void use(u32 index, u32 by) {
  u32 generation = GENERATION_OF(look_at(index)) + 1;
  holder[index] = by;
  assert(generation & 1);
  assert(!used[index * USES + generation]++);
  STORE(states[index], WORD(generation, 0), RELEASE);
  u32 armed = WORD(generation, 0), after = INDEX(LOAD(stack, ACQUIRE));
  assert(holder[index] == by);
  bool ended = TRY(states[index], armed, WORD(generation + 1, after), ACQ_REL, ACQUIRE);
  assert(ended);
  push(WORD(generation + 1, index), WORD(generation + 1, index), after);
}

// Claimed::bump, and what is left out of it
static u32 bumped(u32 index, u32 fault) {
  return GENERATION_OF(look_at(index)) + (FAULT == fault ? 0 : 2);
}

// Takes an entry and gives it back unused, while the next one is used: Slab::release_rounds, Trim
static void give_back_beside(u32 index, u32 next, u32 fault, u32 by) {
  u32 generation = bumped(index, fault);
  holder[index] = by;
  chain(index, generation, LAST);
  push(WORD(generation, index), WORD(generation, index), LAST);
  if (next < PAGE) use(next, by);
}

static void keep(u32 by) {
  u32 rounds = take_rounds(PAGE), top = INDEX(rounds);
  if (rounds == NOTHING) return;
  u32 next = GENERATION_OF(rounds) == PAGE ? INDEX(look_at(top)) : LAST;
  give_back_beside(top, next, RETURNED_NOT_BUMPED, by);
}

// Trim::advance, Trim::give_back
static void hoard(u32 by) {
  u32 hoarded = vacant(1);
  if (hoarded == NOTHING) return;
  give_back_beside(INDEX(hoarded), INDEX(vacant(1)), HOARDED_NOT_BUMPED, by);
}

// Trim::advance, Trim::add, PageTable::remove
static void trim(u32 by) {
  u32 first = NOTHING, last = NOTHING, count = 0, newest = 0;
  for (u32 rounds = vacant(1); rounds != NOTHING && count < PAGE; rounds = vacant(1)) {
    u32 index = INDEX(rounds), generation = bumped(index, HOARDED_NOT_BUMPED);
    holder[index] = by;
    chain(index, generation, INDEX(first));
    first = WORD(generation, index);
    if (!count++) last = first;
    if (generation > newest) newest = generation;
    if (count == PAGE) break;
  }
  if (count == PAGE) {
    STORE(base, newest, RELAXED);
    for (u32 index = 0; index < PAGE; index++) STORE(states[index], 0, RELAXED); // Places::zero
    STORE(page, 0, ORDER(PAGE_OUT_RELAXED, RELEASE));
  } else if (count) {
    push(first, last, LAST);
  }
}

static void act(u32 what, u32 by) {
  if (what == KEEP) keep(by);
  if (what == HOARD) hoard(by);
  if (what == TRIM || what == TRIM_AND_USE) trim(by);
  if (what == USE || what == TRIM_AND_USE) {
    u32 rounds = take_rounds(1);
    if (rounds != NOTHING) use(INDEX(rounds), by);
  }
}
static void *first_thread(void *unused) { act(FIRST, 1); return unused; }
static void *second_thread(void *unused) { act(SECOND, 2); return unused; }

int main(void) {
  STORE(stack, NOTHING, RELAXED);
  STORE(base, 2, RELAXED);
  STORE(page, BEGIN != ABSENT, RELAXED);
  if (BEGIN == STACKED) {
    reinit(0, PAGE);
    STORE(stack, WORD(2, 0), RELAXED);
  } else if (BEGIN == FRESH) {
    STORE(remainder, WORD(PAGE, 0), RELAXED);
  }
  run(first_thread, second_thread, 0);
  u32 left = 0;
  for (u32 rounds = vacant(1); rounds != NOTHING; rounds = vacant(1)) {
    holder[INDEX(rounds)] = 3;
    assert(++left <= PAGE);
  }
  assert(left == (LOAD(page, RELAXED) ? PAGE : 0));
}
