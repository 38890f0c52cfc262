// The racing parts of the wheel in C11, for GenMC. Each function cites the Rust that it is a copy
// of. A change of that Rust is a change here. Orderings and their
// order in the program are the Rust's; why they are as they are is said there.
//
// Smaller than the Rust: one shard with one entry; two levels of two slots; blocks of two references,
// which are never freed; whole ticks in the state, without a window; no vacant stack (an entry is
// claimed by at most one thread of a model), no values, no upkeep, no drain.

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef unsigned u32;
typedef u32 Tick;

#define RELAXED memory_order_relaxed
#define ACQUIRE memory_order_acquire
#define RELEASE memory_order_release
#define ACQ_REL memory_order_acq_rel

// What a model can be broken by: -DFAULT=NAME.
enum {
  NONE,
  // Orderings made relaxed.
  MARK_RELAXED,
  CLEAR_RELAXED,
  PUSH_RELAXED,
  TAKE_RELAXED,
  NEXT_VISIT_RELAXED,
  STATE_RELAXED,
  PAGE_RELAXED,
  HEAD_RELAXED,
  REMAINDER_RELAXED,
  PAGE_OUT_RELAXED,
  // Fences left out: of whoever files, of the sweep, of the rest.
  NO_FENCE_AFTER_FILING,
  NO_FENCE_AFTER_PUBLISHING,
  NO_FENCE_BEFORE_RESTING,
  // Steps left out or exchanged.
  UNMARKED_AFTER_THE_TAKE,
  REDUNDANT_NOT_REVALIDATED,
  REFILED_NOT_REVALIDATED,
  NO_RECHECK_AFTER_FILING,
  NO_RECHECK_BEFORE_RESTING,
  NO_CHECK_OF_THE_FLAG,
  RETURNED_NOT_BUMPED,
  HOARDED_NOT_BUMPED,
};
#ifndef FAULT
#define FAULT NONE
#endif

#define ORDER(fault, order) (FAULT == (fault) ? RELAXED : (order))
#define LOAD(word, order) atomic_load_explicit(&(word), order)
#define STORE(word, value, order) atomic_store_explicit(&(word), value, order)
// Writes `next` if the word is `seen`; otherwise `seen` becomes what it is.
#define TRY(word, seen, next, success, failure) \
  atomic_compare_exchange_strong_explicit(&(word), &(seen), next, success, failure)

// ---- src/wheel/hierarchy/geometry.rs: slots 0 and 1 are level 0, 2 and 3 are level 1

enum { LEVELS = 2, SLOTS = 4, OVERDUE = 4, NEVER = 63 };

// Where a reference waits: its slot, and when that is taken (for what is overdue, the sweep's tick). One
// word, because GenMC wants values of one size.
typedef u32 Place;
#define PLACE(slot, at) ((slot) << 8 | (at))
#define SLOT_OF(place) ((place) >> 8)
#define AT(place) ((place) & 255u)
#define LEVEL_OF(slot) ((slot) >> 1)

// Geometry::place
static Place place_for(Tick deadline, Tick swept) {
  if (deadline <= swept) return PLACE(OVERDUE, swept);
  if (deadline - swept < 2) return PLACE(deadline & 1, deadline);
  u32 number = deadline >> 1, farthest = (swept >> 1) + 1;
  if (number > farthest) number = farthest;
  return PLACE(2 + (number & 1), number << 1);
}

// Geometry::next_expiry
static Tick next_expiry_of(u32 slot, Tick swept) {
  u32 level = LEVEL_OF(slot), next = (swept >> level) + 1;
  return (next + ((slot - next) & 1)) << level;
}

// Geometry::is_taken_at
static bool is_taken_at(u32 slot, Tick at) {
  u32 level = LEVEL_OF(slot), number = at >> level;
  return (number & 1) == (slot & 1) && number << level == at;
}

// ---- src/wheel/hierarchy/slot.rs

enum { REFERENCES = 2, BLOCKS = 20 };
static _Atomic u32 references[BLOCKS * REFERENCES];
static u32 next_block[BLOCKS];
// A block's number and one more, and how many of its references are reserved.
static _Atomic u32 heads[SLOTS + 1];
#define HEAD(block, count) (((block) + 1) << 4 | (count))
#define COUNT(head) ((head) & 15u)
#define BLOCK(head) (((head) >> 4) - 1)
#define PUSH ORDER(PUSH_RELAXED, ACQ_REL)

// SlotHead::push. `spare` is the first of the blocks that are this thread's to use.
static void slot_push(u32 slot, u32 *spare) {
  u32 head = LOAD(heads[slot], RELAXED);
  for (;;) {
    if (head == 0 || COUNT(head) == REFERENCES) {
      u32 block = *spare;
      STORE(references[block * REFERENCES], 1, RELAXED);
      next_block[block] = head;
      if (TRY(heads[slot], head, HEAD(block, 1), PUSH, RELAXED)) {
        *spare = block + 1;
        return;
      }
    } else {
      u32 reserved = BLOCK(head) * REFERENCES + COUNT(head);
      if (TRY(heads[slot], head, head + 1, PUSH, RELAXED)) {
        STORE(references[reserved], 1, RELEASE);
        return;
      }
    }
  }
}

// SlotHead::take
static u32 slot_take(u32 slot) {
  return atomic_exchange_explicit(&heads[slot], 0, ORDER(TAKE_RELAXED, ACQ_REL));
}

// ---- src/wheel/hierarchy/occupancy.rs

static _Atomic u32 occupied[LEVELS];

// Occupancy::mark
static void occupancy_mark(u32 slot) {
  u32 bit = 1u << (slot & 1);
  if (!(LOAD(occupied[LEVEL_OF(slot)], RELAXED) & bit))
    atomic_fetch_or_explicit(&occupied[LEVEL_OF(slot)], bit, ORDER(MARK_RELAXED, ACQ_REL));
}

// Occupancy::clear
static void occupancy_clear(u32 slot) {
  u32 bit = 1u << (slot & 1);
  atomic_fetch_and_explicit(&occupied[LEVEL_OF(slot)], ~bit, ORDER(CLEAR_RELAXED, ACQ_REL));
}

// Occupancy::distance, Hierarchy::next_in: the next expiry on the level and its slot, or NEVER
static Place next_in(u32 level, Tick swept) {
  u32 set = LOAD(occupied[level], ACQUIRE);
  Place best = PLACE(0, NEVER);
  for (u32 slot = 2 * level; slot < 2 * level + 2; slot++) {
    Tick expiry = next_expiry_of(slot, swept);
    if (set & 1u << (slot & 1) && expiry < AT(best)) best = PLACE(slot, expiry);
  }
  return best;
}

// ---- src/wheel/hierarchy/mod.rs

// Hierarchy::file
static void file(Place place, u32 *spare) {
  slot_push(SLOT_OF(place), spare);
  if (SLOT_OF(place) != OVERDUE) occupancy_mark(SLOT_OF(place));
}

// Hierarchy::take
static u32 take(u32 slot) {
  if (FAULT == UNMARKED_AFTER_THE_TAKE) {
    u32 head = slot_take(slot);
    occupancy_clear(slot);
    return head;
  }
  if (slot != OVERDUE) occupancy_clear(slot);
  return slot_take(slot);
}

// Hierarchy::has_overdue
static bool has_overdue(void) { return LOAD(heads[OVERDUE], ACQUIRE) != 0; }

// ---- src/wheel/progress/swept.rs, src/wheel/progress/wakeup.rs

static _Atomic Tick swept, until;
static _Atomic u32 woken;

// swept::full_fence
#define FULL_FENCE(fault) \
  if (FAULT != (fault)) atomic_thread_fence(memory_order_seq_cst)

// SweptTick::get
static Tick swept_get(void) { return LOAD(swept, RELAXED); }

// SweptTick::publish
static void publish(Tick tick) {
  STORE(swept, tick, RELAXED);
  FULL_FENCE(NO_FENCE_AFTER_PUBLISHING);
}

// Wakeup::check. The wake-up is one that the models look for.
static void wakeup_check(Tick at) {
  if (at < LOAD(until, RELAXED)) STORE(woken, 1, RELEASE);
}

// ---- src/wheel/slab/state.rs: generation (odd: a timer), refiling flag, deadline

static _Atomic u32 state;
#define STATE(generation, deadline) ((generation) << 8 | (deadline))
#define REFILING 128u
#define GENERATION(state) ((state) >> 8)
#define IS_ARMED(state) (GENERATION(state) & 1u)
#define DEADLINE(state) ((state) & 63u)
#define EXCHANGE ORDER(STATE_RELAXED, ACQ_REL)

// AtomicEntryState::load
static u32 state_load(void) { return LOAD(state, ACQUIRE); }

// AtomicEntryState::try_reset, try_arm, try_end: what the state was, `seen` if it is `next` now
static u32 state_swap(u32 seen, u32 next) {
  TRY(state, seen, next, EXCHANGE, ORDER(STATE_RELAXED, ACQUIRE));
  return seen;
}

// AtomicEntryState::try_revalidate: the present state, `seen` if it is revalidated
static u32 revalidate(u32 seen) { return state_swap(seen, seen); }

// AtomicEntryState::clear_refiling
static void clear_refiling(void) { atomic_fetch_and_explicit(&state, ~REFILING, ACQ_REL); }

// ---- src/wheel/slab/next_visit.rs

static _Atomic Tick next_visit_;

// AtomicNextVisit::load
static Tick next_visit_load(void) { return LOAD(next_visit_, ACQUIRE); }

// AtomicNextVisit::store
static void next_visit_store(Tick at) { STORE(next_visit_, at, RELAXED); }

// AtomicNextVisit::replace: what `next_visit` was, `seen` if it is `next` now
static Tick next_visit_replace(Tick seen, Tick next) {
  TRY(next_visit_, seen, next, ORDER(NEXT_VISIT_RELAXED, ACQ_REL), ORDER(NEXT_VISIT_RELAXED, ACQUIRE));
  return seen;
}

// ---- src/wheel/shard/mod.rs: the callers

// in_time
static bool in_time(Tick next_visit, Tick deadline, Tick swept) {
  return swept < next_visit && next_visit <= deadline;
}

// ahead_of: half of a distance below four is nothing.
static Tick ahead_of(Tick deadline, Tick swept) {
  return deadline > swept ? deadline - (deadline - swept) / 4 * 2 : deadline;
}

// has_passed
static bool has_passed(Place place) {
  return SLOT_OF(place) != OVERDUE && AT(place) <= swept_get();
}

// set_next_visit
static void set_next_visit(Place place, Tick swept) {
  if (SLOT_OF(place) == OVERDUE) return;
  Tick seen = next_visit_load();
  while (!in_time(seen, AT(place), swept)) {
    Tick was = next_visit_replace(seen, AT(place));
    if (was == seen) return;
    seen = was;
  }
}

// Shard::refile_as
static void refile_as(bool held, u32 generation, u32 *spare) {
  for (;;) {
    u32 seen = state_load();
    if (GENERATION(seen) != generation) break;
    Tick swept = swept_get();
    Place place = place_for(ahead_of(DEADLINE(seen), swept), swept);
    file(place, spare);
    if (held) set_next_visit(place, swept);
    FULL_FENCE(NO_FENCE_AFTER_FILING);
    if (FAULT != NO_RECHECK_AFTER_FILING && has_passed(place)) continue;
    wakeup_check(AT(place));
    break;
  }
  if (held) clear_refiling();
}

// Shard::refile
static void refile(u32 generation, u32 *spare) {
  u32 seen = state_load();
  while (GENERATION(seen) == generation) {
    if (seen & REFILING) {
      refile_as(false, generation, spare);
      return;
    }
    u32 was = state_swap(seen, seen | REFILING);
    if (was == seen) {
      refile_as(true, generation, spare);
      return;
    }
    seen = was;
  }
}

// Shard::rely
static void rely(u32 generation, Tick deadline, u32 *spare) {
  if (!in_time(next_visit_load(), deadline, swept_get()))
    refile(generation, spare);
  else if (FAULT != NO_CHECK_OF_THE_FLAG && state_load() & REFILING)
    refile_as(false, generation, spare);
}

// Shard::set_deadline
static bool reset(u32 generation, Tick deadline, u32 *spare) {
  u32 seen = state_load();
  for (;;) {
    if (GENERATION(seen) != generation) return false;
    bool free = !(seen & REFILING);
    bool early = free && !in_time(next_visit_load(), deadline, swept_get());
    u32 flag = early ? REFILING : seen & REFILING;
    u32 was = state_swap(seen, STATE(generation, deadline) | flag);
    if (was != seen) {
      seen = was;
      continue;
    }
    if (early)
      refile_as(true, generation, spare);
    else if (free)
      rely(generation, deadline, spare);
    else
      refile_as(false, generation, spare);
    return true;
  }
}

// Shard::end, without the release: the entry is the next insert's of a model.
static bool cancel(u32 generation) {
  u32 seen = state_load();
  while (GENERATION(seen) == generation) {
    u32 was = state_swap(seen, STATE(generation + 1, 0) | (seen & REFILING));
    if (was == seen) return true;
    seen = was;
  }
  return false;
}

// arm
static u32 arm(u32 vacant, Tick deadline) {
  for (;;) {
    u32 armed = STATE(GENERATION(vacant) + 1, deadline) | (vacant & REFILING);
    u32 was = state_swap(vacant, armed);
    if (was == vacant) return armed;
    vacant = was;
  }
}

// Engine::arm, Shard::store_and_file: into the entry, claimed by the caller. The timer's generation.
static u32 insert(Tick deadline, u32 *spare) {
  u32 vacant = state_load(), generation = GENERATION(vacant) + 1;
  Tick swept = swept_get();
  if (vacant & REFILING || in_time(next_visit_load(), deadline, swept)) {
    u32 armed = arm(vacant, deadline);
    if (armed & REFILING)
      refile_as(false, generation, spare);
    else
      rely(generation, deadline, spare);
    return generation;
  }
  Place place = place_for(deadline, swept);
  next_visit_store(AT(place));
  STORE(state, STATE(generation, deadline), RELEASE); // AtomicEntryState::arm
  file(place, spare);
  FULL_FENCE(NO_FENCE_AFTER_FILING);
  if (FAULT != NO_RECHECK_AFTER_FILING && has_passed(place))
    refile(generation, spare);
  else
    wakeup_check(AT(place));
  return generation;
}

// ---- src/wheel/ops/visit.rs: what is not atomic is the sweeper's own

static Tick reached; // how far this sweeper has come
static u32 fired, fired_deadline;
static u32 sweepers_spare = 12; // blocks 12 and on are the sweeper's

// Shard::leave
static void leave(u32 ended, u32 slot) {
  if (slot == OVERDUE) return;
  Tick next_visit = next_visit_load();
  if (ended & REFILING)
    file(PLACE(slot, next_expiry_of(slot, reached)), &sweepers_spare);
  else if (reached < next_visit && is_taken_at(slot, next_visit))
    next_visit_store(0);
}

// What comes of a step of visiting: one of these, or the state to look at again.
#define DONE 0xffffffffu
#define NEEDED 0xfffffffeu

// `DONE` if the state is still `seen`.
static u32 revalidated(u32 seen) {
  u32 now = revalidate(seen);
  return now == seen ? DONE : now;
}

// Shard::try_discard
static u32 try_discard(u32 seen, u32 slot) {
  if (seen & REFILING) return NEEDED;
  Tick next_visit = next_visit_load();
  bool ahead = reached < next_visit;
  bool here = ahead && slot != OVERDUE && is_taken_at(slot, next_visit);
  if (IS_ARMED(seen)) {
    if (here || !ahead || next_visit > DEADLINE(seen)) return NEEDED;
    if (FAULT == REDUNDANT_NOT_REVALIDATED) return DONE;
  } else if (here && next_visit_replace(next_visit, 0) != next_visit) {
    return revalidate(seen);
  }
  return revalidated(seen);
}

// Shard::try_requeue
static u32 try_requeue(u32 seen, u32 slot) {
  Place place = place_for(DEADLINE(seen), reached);
  if (seen & REFILING) {
    Tick kept = NEVER;
    if (slot != OVERDUE) {
      kept = next_expiry_of(slot, reached);
      file(PLACE(slot, kept), &sweepers_spare);
    }
    if (!IS_ARMED(seen) || kept <= DEADLINE(seen)) return revalidated(seen);
  } else {
    Tick next_visit = next_visit_load();
    if (next_visit_replace(next_visit, AT(place)) != next_visit) return revalidate(seen);
  }
  file(place, &sweepers_spare);
  return FAULT == REFILED_NOT_REVALIDATED ? DONE : revalidated(seen);
}

// Shard::visit
static void visit(u32 slot) {
  u32 seen = state_load();
  while (seen != DONE) {
    if (IS_ARMED(seen) && DEADLINE(seen) <= reached) {
      u32 was = state_swap(seen, STATE(GENERATION(seen) + 1, 0) | (seen & REFILING));
      if (was == seen) {
        fired++;
        fired_deadline = DEADLINE(seen);
        leave(seen, slot);
        return;
      }
      seen = was;
    } else {
      u32 dropped = try_discard(seen, slot);
      seen = dropped == NEEDED ? try_requeue(seen, slot) : dropped;
    }
  }
}

// ---- src/wheel/sweep/sweeper.rs

// A block with references that are not written yet: its number, the places to read, its slot.
static u32 kept_block[8], kept_places[8], kept_slot[8], kept;

// Unwritten::read_written
static void read_written(u32 block, u32 places, u32 slot) {
  for (u32 place = 0; place < REFERENCES; place++) {
    if (places & 1u << place && LOAD(references[block * REFERENCES + place], ACQUIRE)) {
      places &= ~(1u << place);
      visit(slot);
    }
  }
  if (places) {
    kept_block[kept] = block;
    kept_places[kept] = places;
    kept_slot[kept] = slot;
    kept++;
  }
}

// Chain::read_block, to the end of the chain
static void visit_all(u32 head, u32 slot) {
  for (u32 count = COUNT(head); head; count = REFERENCES) {
    u32 block = BLOCK(head);
    head = next_block[block];
    read_written(block, (1u << count) - 1, slot);
  }
}

// Sweeper::work_kept
static void work_kept(void) {
  for (u32 left = kept; left; left--) {
    u32 block = kept_block[0], places = kept_places[0], slot = kept_slot[0];
    kept--;
    for (u32 i = 0; i < kept; i++) {
      kept_block[i] = kept_block[i + 1];
      kept_places[i] = kept_places[i + 1];
      kept_slot[i] = kept_slot[i + 1];
    }
    read_written(block, places, slot);
  }
}

// Sweeper::next_slot
static Tick next_slot(void) {
  Tick near = AT(next_in(0, reached)), far = AT(next_in(1, reached));
  return near < far ? near : far;
}

// The taken chains and their slots.
static u32 hand[8], hand_slot[8];

// Sweeper::step
static void sweep(Tick target) {
  STORE(until, 0, RELAXED); // Wakeup::clear
  if (has_overdue()) visit_all(take(OVERDUE), OVERDUE);
  work_kept();
  while (reached < target) {
    Tick from = reached, tick = next_slot();
    reached = tick < target ? tick : target;
    publish(reached);
    u32 taken = 0;
    for (u32 level = 0; level < LEVELS; level++) { // Hierarchy::take_due
      for (Place due = next_in(level, from); AT(due) <= reached; due = next_in(level, AT(due))) {
        hand_slot[taken] = SLOT_OF(due);
        hand[taken++] = take(SLOT_OF(due));
      }
    }
    for (u32 i = 0; i < taken; i++) visit_all(hand[i], hand_slot[i]);
  }
}

// Unwritten::has_news, of any kept block
static bool has_news(void) {
  for (u32 i = 0; i < kept; i++)
    for (u32 place = 0; place < REFERENCES; place++)
      if (kept_places[i] & 1u << place && LOAD(references[kept_block[i] * REFERENCES + place], RELAXED))
        return true;
  return false;
}

// Sweeper::next_expiry
static Tick next_expiry(void) { return has_overdue() || has_news() ? reached : next_slot(); }

// Sweeper::next_deadline: until when the sweeper rests
static Tick rest(void) {
  Tick next = next_expiry();
  for (;;) {
    STORE(until, next, RELAXED); // Wakeup::set
    FULL_FENCE(NO_FENCE_BEFORE_RESTING);
    if (FAULT == NO_RECHECK_BEFORE_RESTING) return next;
    Tick again = next_expiry();
    if (again >= next) return next;
    next = again;
  }
}

// ---- what the models share

// As if the sweep had reached tick 1 and the entry had a timer of this deadline, its only reference in
// slot 3, which is taken at tick 2.
#define SWEPT_TO_1 1
static void armed_in_slot_3(Tick deadline) {
  STORE(state, STATE(1, deadline), RELAXED);
  STORE(next_visit_, 2, RELAXED);
  STORE(references[0], 1, RELAXED);
  STORE(heads[3], HEAD(0, 1), RELAXED);
  STORE(occupied[1], 2, RELAXED);
  reached = SWEPT_TO_1;
  STORE(swept, SWEPT_TO_1, RELAXED);
}

// The sweep comes to tick 2 and takes slot 3 alone, so that the executions stay few.
static void sweep_slot_3(void) {
  reached = 2;
  publish(2);
  visit_all(take(3), 3);
}

// After the threads: the timer that is armed, if any, fires at its deadline and at no other tick.
static void fires_in_time(void) {
  u32 now = state_load(), before = fired;
  if (!IS_ARMED(now)) return;
  assert(!(now & REFILING));
  for (Tick tick = reached; fired == before; tick++) {
    assert(tick <= DEADLINE(now) || tick == reached);
    sweep(tick);
    assert(fired == before || (tick >= DEADLINE(now) && fired_deadline == DEADLINE(now)));
  }
  assert(fired == before + 1);
}

// Runs the threads of a model to their end.
typedef void *(*Thread)(void *);
static void run(Thread first, Thread second, Thread third) {
  pthread_t threads[3];
  pthread_create(&threads[0], 0, first, 0);
  pthread_create(&threads[1], 0, second, 0);
  if (third) pthread_create(&threads[2], 0, third, 0);
  pthread_join(threads[0], 0);
  pthread_join(threads[1], 0);
  if (third) pthread_join(threads[2], 0);
}
