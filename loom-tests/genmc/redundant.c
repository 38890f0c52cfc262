// The sweep visits a reference that looks redundant, because a resetter has filed an earlier one,
// while another sets a later deadline. Afterwards a reference waits in a slot that is taken no later
// than the deadline (invariant I1 of src/wheel).
//
// run:
// seen: REDUNDANT_NOT_REVALIDATED
// seen: STATE_RELAXED
#include "wheel.h"

static void *sweeper(void *unused) {
  take_next(2);
  return unused;
}
static void *earlier(void *unused) {
  u32 spare = 4;
  reset(1, 3, &spare);
  return unused;
}
static void *later(void *unused) {
  state_compare_exchange(STATE(1, 5), STATE(1, 6)); // a reset that relies on `next_visit`
  return unused;
}

int main(void) {
  begin(1);
  armed_in(3, 5);
  run(earlier, later, sweeper);
  if (fired) return 0;
  bool waits = LOAD(heads[OVERDUE], RELAXED) || kept;
  for (u32 slot = 0; slot < SLOTS; slot++)
    if (LOAD(heads[slot], RELAXED) && next_expiry_of(slot, 2) <= DEADLINE(state_load())) waits = true;
  assert(waits);
}
