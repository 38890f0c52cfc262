// The racing parts of the wheel in C11, for GenMC. Each function is a copy of a function in Rust,
// and README.md has the table of both. Orderings and the order of the operations are those of the
// Rust, which explains them.
//
// The ports are smaller than the Rust. There is one shard with one entry, and there are two levels of
// two slots. Blocks have two references and are never freed. The state holds whole ticks, without a
// window. There are no inserts, no values, no upkeep and no drains.

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

// The faults that break a model: -DFAULT=NAME.
enum {
  NONE,
  // Orderings made relaxed.
  NEXT_VISIT_RELAXED,
  STATE_RELAXED,
  PAGE_RELAXED,
  // Steps left out.
  NO_FENCE_AFTER_FILING,
  REDUNDANT_NOT_REVALIDATED,
  NO_CHECK_OF_THE_FLAG,
};
#ifndef FAULT
#define FAULT NONE
#endif

#define ORDER(fault, order) (FAULT == (fault) ? RELAXED : (order))
#define LOAD(word, order) atomic_load_explicit(&(word), order)
#define STORE(word, value, order) atomic_store_explicit(&(word), value, order)
// Writes `next` if the word is `seen`. Otherwise `seen` becomes its value.
#define TRY(word, seen, next, success, failure) \
  atomic_compare_exchange_strong_explicit(&(word), &(seen), next, success, failure)

// ---- The geometry: slots 0 and 1 are level 0, slots 2 and 3 are level 1.

enum { LEVELS = 2, SLOTS = 4, OVERDUE = 4, NEVER = 63 };

// The place of a reference: its slot, and the tick at which that is taken (for the overdue slot, the
// tick of the sweep). One word, because GenMC requires values of one size.
typedef u32 Place;
#define PLACE(slot, at) ((slot) << 8 | (at))
#define SLOT_OF(place) ((place) >> 8)
#define AT(place) ((place) & 255u)
#define LEVEL_OF(slot) ((slot) >> 1)

static Place place_for(Tick deadline, Tick swept) {
  if (deadline <= swept) return PLACE(OVERDUE, swept);
  if (deadline - swept < 2) return PLACE(deadline & 1, deadline);
  u32 number = deadline >> 1, farthest = (swept >> 1) + 1;
  if (number > farthest) number = farthest;
  return PLACE(2 + (number & 1), number << 1);
}

static Tick next_expiry_of(u32 slot, Tick swept) {
  u32 level = LEVEL_OF(slot), next = (swept >> level) + 1;
  return (next + ((slot - next) & 1)) << level;
}

static bool is_taken_at(u32 slot, Tick at) {
  u32 level = LEVEL_OF(slot), number = at >> level;
  return (number & 1) == (slot & 1) && number << level == at;
}

// ---- The slots.

enum { REFERENCES = 2, BLOCKS = 20 };
static _Atomic u32 references[BLOCKS * REFERENCES];
static u32 next_block[BLOCKS];
// The number of a block plus one, and the count of its reserved references.
static _Atomic u32 heads[SLOTS + 1];
#define HEAD(block, count) (((block) + 1) << 4 | (count))
#define COUNT(head) ((head) & 15u)
#define BLOCK(head) (((head) >> 4) - 1)

// `spare` is the first of the blocks that this thread may use.
static void slot_push(u32 slot, u32 *spare) {
  u32 head = LOAD(heads[slot], RELAXED);
  for (;;) {
    if (head == 0 || COUNT(head) == REFERENCES) {
      u32 block = *spare;
      STORE(references[block * REFERENCES], 1, RELAXED);
      next_block[block] = head;
      if (TRY(heads[slot], head, HEAD(block, 1), ACQ_REL, RELAXED)) {
        *spare = block + 1;
        return;
      }
    } else {
      u32 reserved = BLOCK(head) * REFERENCES + COUNT(head);
      if (TRY(heads[slot], head, head + 1, ACQ_REL, RELAXED)) {
        STORE(references[reserved], 1, RELEASE);
        return;
      }
    }
  }
}

static u32 slot_take(u32 slot) {
  return atomic_exchange_explicit(&heads[slot], 0, ACQ_REL);
}

// ---- The bits of occupied slots.

static _Atomic u32 occupied[LEVELS];

static void occupancy_mark(u32 slot) {
  u32 bit = 1u << (slot & 1);
  if (!(LOAD(occupied[LEVEL_OF(slot)], RELAXED) & bit))
    atomic_fetch_or_explicit(&occupied[LEVEL_OF(slot)], bit, ACQ_REL);
}

static void occupancy_clear(u32 slot) {
  u32 bit = 1u << (slot & 1);
  atomic_fetch_and_explicit(&occupied[LEVEL_OF(slot)], ~bit, ACQ_REL);
}

// The next expiry on the level and its slot, or NEVER.
static Place next_in(u32 level, Tick swept) {
  u32 set = LOAD(occupied[level], ACQUIRE);
  Place best = PLACE(0, NEVER);
  for (u32 slot = 2 * level; slot < 2 * level + 2; slot++) {
    Tick expiry = next_expiry_of(slot, swept);
    if (set & 1u << (slot & 1) && expiry < AT(best)) best = PLACE(slot, expiry);
  }
  return best;
}

// ---- The hierarchy.

static void file(Place place, u32 *spare) {
  slot_push(SLOT_OF(place), spare);
  if (SLOT_OF(place) != OVERDUE) occupancy_mark(SLOT_OF(place));
}

static u32 take(u32 slot) {
  if (slot != OVERDUE) occupancy_clear(slot);
  return slot_take(slot);
}

static bool has_overdue(void) { return LOAD(heads[OVERDUE], ACQUIRE) != 0; }

// ---- The published tick of the sweep, and the wake-up.

static _Atomic Tick swept, until;
static _Atomic u32 woken;

#define FULL_FENCE() atomic_thread_fence(memory_order_seq_cst)

static Tick swept_get(void) { return LOAD(swept, RELAXED); }

static void publish(Tick tick) {
  STORE(swept, tick, RELAXED);
  FULL_FENCE();
}

// The wake-up sets a word that the models read.
static void wakeup_check(Tick at) {
  if (at < LOAD(until, RELAXED)) STORE(woken, 1, RELEASE);
}

// ---- The state of the entry: generation (odd if armed), refiling flag, deadline.

static _Atomic u32 state;
#define STATE(generation, deadline) ((generation) << 8 | (deadline))
#define REFILING 128u
#define GENERATION(state) ((state) >> 8)
#define IS_ARMED(state) (GENERATION(state) & 1u)
#define DEADLINE(state) ((state) & 63u)
#define EXCHANGE ORDER(STATE_RELAXED, ACQ_REL)

static u32 state_load(void) { return LOAD(state, ACQUIRE); }

// Returns the former state, which is `seen` if the exchange succeeded.
static u32 state_compare_exchange(u32 seen, u32 next) {
  TRY(state, seen, next, EXCHANGE, ORDER(STATE_RELAXED, ACQUIRE));
  return seen;
}

// Returns the present state, which is `seen` if it is revalidated.
static u32 revalidate(u32 seen) { return state_compare_exchange(seen, seen); }

static void clear_refiling(void) { atomic_fetch_and_explicit(&state, ~REFILING, ACQ_REL); }

// ---- The next visit of the entry.

static _Atomic Tick next_visit_;

static Tick next_visit_load(void) { return LOAD(next_visit_, ACQUIRE); }

static void next_visit_store(Tick at) { STORE(next_visit_, at, RELAXED); }

// Returns the former value, which is `seen` if the exchange succeeded.
static Tick next_visit_compare_exchange(Tick seen, Tick next) {
  TRY(next_visit_, seen, next, ORDER(NEXT_VISIT_RELAXED, ACQ_REL),
      ORDER(NEXT_VISIT_RELAXED, ACQUIRE));
  return seen;
}

// ---- The operations of callers.

static bool in_time(Tick next_visit, Tick deadline, Tick swept) {
  return swept < next_visit && next_visit <= deadline;
}

// Half of a distance below four is zero.
static Tick ahead_of(Tick deadline, Tick swept) {
  return deadline > swept ? deadline - (deadline - swept) / 4 * 2 : deadline;
}

static bool has_passed(Place place) {
  return SLOT_OF(place) != OVERDUE && AT(place) <= swept_get();
}

static void set_next_visit(Place place, Tick swept) {
  if (SLOT_OF(place) == OVERDUE) return;
  Tick seen = next_visit_load();
  while (!in_time(seen, AT(place), swept)) {
    Tick was = next_visit_compare_exchange(seen, AT(place));
    if (was == seen) return;
    seen = was;
  }
}

static void refile_as(bool held, u32 generation, u32 *spare) {
  for (;;) {
    u32 seen = state_load();
    if (GENERATION(seen) != generation) break;
    Tick swept = swept_get();
    Place place = place_for(ahead_of(DEADLINE(seen), swept), swept);
    file(place, spare);
    if (held) set_next_visit(place, swept);
    if (FAULT != NO_FENCE_AFTER_FILING) FULL_FENCE();
    if (has_passed(place)) continue;
    wakeup_check(AT(place));
    break;
  }
  if (held) clear_refiling();
}

static void refile(u32 generation, u32 *spare) {
  u32 seen = state_load();
  while (GENERATION(seen) == generation) {
    if (seen & REFILING) {
      refile_as(false, generation, spare);
      return;
    }
    u32 was = state_compare_exchange(seen, seen | REFILING);
    if (was == seen) {
      refile_as(true, generation, spare);
      return;
    }
    seen = was;
  }
}

static void rely(u32 generation, Tick deadline, u32 *spare) {
  if (!in_time(next_visit_load(), deadline, swept_get()))
    refile(generation, spare);
  else if (FAULT != NO_CHECK_OF_THE_FLAG && state_load() & REFILING)
    refile_as(false, generation, spare);
}

static bool reset(u32 generation, Tick deadline, u32 *spare) {
  u32 seen = state_load();
  for (;;) {
    if (GENERATION(seen) != generation) return false;
    bool free = !(seen & REFILING);
    bool early = free && !in_time(next_visit_load(), deadline, swept_get());
    u32 flag = early ? REFILING : seen & REFILING;
    u32 was = state_compare_exchange(seen, STATE(generation, deadline) | flag);
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

// ---- Visits: what is not atomic belongs to the sweeper.

static Tick reached; // the tick that this sweeper has reached
static u32 fired;
static u32 sweepers_spare = 12; // blocks 12 and on are the sweeper's

static void leave(u32 ended, u32 slot) {
  if (slot == OVERDUE) return;
  Tick next_visit = next_visit_load();
  if (ended & REFILING)
    file(PLACE(slot, next_expiry_of(slot, reached)), &sweepers_spare);
  else if (reached < next_visit && is_taken_at(slot, next_visit))
    next_visit_store(0);
}

// The outcome of a step of a visit is one of these, or the state to check again.
#define DONE 0xffffffffu
#define NEEDED 0xfffffffeu

// `DONE` if the state is still `seen`.
static u32 revalidated(u32 seen) {
  u32 now = revalidate(seen);
  return now == seen ? DONE : now;
}

static u32 try_discard(u32 seen, u32 slot) {
  if (seen & REFILING) return NEEDED;
  Tick next_visit = next_visit_load();
  bool ahead = reached < next_visit;
  bool here = ahead && slot != OVERDUE && is_taken_at(slot, next_visit);
  if (IS_ARMED(seen)) {
    if (here || !ahead || next_visit > DEADLINE(seen)) return NEEDED;
    if (FAULT == REDUNDANT_NOT_REVALIDATED) return DONE;
  } else if (here && next_visit_compare_exchange(next_visit, 0) != next_visit) {
    return revalidate(seen);
  }
  return revalidated(seen);
}

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
    if (next_visit_compare_exchange(next_visit, AT(place)) != next_visit) return revalidate(seen);
  }
  file(place, &sweepers_spare);
  return revalidated(seen);
}

static void visit(u32 slot) {
  u32 seen = state_load();
  while (seen != DONE) {
    if (IS_ARMED(seen) && DEADLINE(seen) <= reached) {
      u32 was = state_compare_exchange(seen, STATE(GENERATION(seen) + 1, 0) | (seen & REFILING));
      if (was == seen) {
        fired++;
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

// ---- The sweeper.

// Blocks with references that are not written yet: number, unread positions and slot of each.
static u32 kept_block[8], kept_positions[8], kept_slot[8], kept;

static void read_written(u32 block, u32 positions, u32 slot) {
  for (u32 position = 0; position < REFERENCES; position++) {
    if (positions & 1u << position && LOAD(references[block * REFERENCES + position], ACQUIRE)) {
      positions &= ~(1u << position);
      visit(slot);
    }
  }
  if (positions) {
    kept_block[kept] = block;
    kept_positions[kept] = positions;
    kept_slot[kept] = slot;
    kept++;
  }
}

// Reads all blocks of a chain.
static void visit_all(u32 head, u32 slot) {
  for (u32 count = COUNT(head); head; count = REFERENCES) {
    u32 block = BLOCK(head);
    head = next_block[block];
    read_written(block, (1u << count) - 1, slot);
  }
}

static Tick next_slot(void) {
  Tick near = AT(next_in(0, reached)), far = AT(next_in(1, reached));
  return near < far ? near : far;
}

// Returns whether a reference was written to a kept block.
static bool has_news(void) {
  for (u32 i = 0; i < kept; i++)
    for (u32 position = 0; position < REFERENCES; position++)
      if (kept_positions[i] & 1u << position &&
          LOAD(references[kept_block[i] * REFERENCES + position], RELAXED))
        return true;
  return false;
}

static Tick next_expiry(void) { return has_overdue() || has_news() ? reached : next_slot(); }

// Returns the tick until which the sweeper rests.
static Tick rest(void) {
  Tick next = next_expiry();
  for (;;) {
    STORE(until, next, RELAXED);
    FULL_FENCE();
    Tick again = next_expiry();
    if (again >= next) return next;
    next = again;
  }
}

// ---- Shared by the models.

// Sets up a sweep at tick 1 and a timer of this deadline, whose only reference is in slot 3, which is
// taken at tick 2.
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

// Sweeps to tick 2 and takes slot 3 alone, to keep the number of executions small.
static void sweep_slot_3(void) {
  reached = 2;
  publish(2);
  visit_all(take(3), 3);
}

// Runs the threads of a model.
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
