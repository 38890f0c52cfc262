// The racing parts of the wheel in C11, for GenMC. Each function is a copy of a function in Rust,
// and README.md has the table of both. Orderings and the order of the operations are those of the
// Rust, which explains them.
//
// The ports are smaller than the Rust. There is one shard with one entry, and there are two levels
// of two slots. Blocks have two references and are never freed. The state holds whole ticks, without
// a window. An insert finds no old reference. Upkeep takes one slot. There are no values, no drains
// and no budgets, and there is always memory. A second report does not wake the sweeper, which would
// hide the loss of another wake-up.

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
  // Fences left out.
  NO_FENCE_AFTER_FILING,
  NO_FENCE_AFTER_REPORTING,
  NO_FENCE_AFTER_THE_REPORT_OF_ANOTHER,
  NO_FENCE_AFTER_PUBLISHING,
  NO_FENCE_AFTER_ACCEPTING,
  NO_FENCE_BEFORE_RESTING,
  NO_FENCE_AFTER_TIDYING,
  // Other steps left out.
  NOT_REPORTED,
  NOT_RECHECKED,
  NOT_WOKEN,
  NOT_ACCEPTED,
  DUE_NOT_SUSPENDED,
  TIDIED_NOT_SUSPENDED,
  KEPT_NOT_CHECKED,
  KEPT_NOT_CHECKED_BY_A_STEP,
  KEPT_NOT_CHECKED_WHEN_A_SWEEP_BEGINS,
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

enum { LEVELS = 2, SLOTS = 4, OVERDUE = 4 };
// The ticks of a shard that is not scanned, and of one that every step of the sweep scans.
enum { NEVER = 63, SUSPENDED = 0 };

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
// A reference leads to the entry of the models, or to another one, which holds no timer.
enum { UNWRITTEN = 0, ENTRY = 1, OTHER = 2 };
static _Atomic u32 references[BLOCKS * REFERENCES];
static u32 next_block[BLOCKS];
// The number of a block plus one, and the count of its reserved references.
static _Atomic u32 heads[SLOTS + 1];
#define HEAD(block, count) (((block) + 1) << 4 | (count))
#define COUNT(head) ((head) & 15u)
#define BLOCK(head) (((head) >> 4) - 1)

static bool is_full(u32 head) { return head == 0 || COUNT(head) == REFERENCES; }

// Returns the former head, which is `seen` if the reference was pushed.
static u32 push_reference(u32 slot, u32 seen) {
  u32 reserved = BLOCK(seen) * REFERENCES + COUNT(seen);
  if (TRY(heads[slot], seen, seen + 1, ACQ_REL, RELAXED))
    STORE(references[reserved], ENTRY, RELEASE);
  return seen;
}

// `spare` is the first of the blocks that this thread may use.
static void slot_push(u32 slot, u32 *spare) {
  u32 head = LOAD(heads[slot], RELAXED);
  for (;;) {
    if (is_full(head)) {
      u32 block = *spare;
      STORE(references[block * REFERENCES], ENTRY, RELAXED);
      next_block[block] = head;
      if (TRY(heads[slot], head, HEAD(block, 1), ACQ_REL, RELAXED)) {
        *spare = block + 1;
        return;
      }
    } else {
      u32 was = push_reference(slot, head);
      if (was == head) return;
      head = was;
    }
  }
}

static bool is_empty(u32 slot) { return LOAD(heads[slot], ACQUIRE) == 0; }

static u32 slot_take(u32 slot) {
  return atomic_exchange_explicit(&heads[slot], 0, ACQ_REL);
}

// ---- The bits of occupied slots.

static _Atomic u32 occupied[LEVELS];

static void mark(u32 slot) {
  u32 bit = 1u << (slot & 1);
  if (!(LOAD(occupied[LEVEL_OF(slot)], RELAXED) & bit))
    atomic_fetch_or_explicit(&occupied[LEVEL_OF(slot)], bit, ACQ_REL);
}

static void clear(u32 slot) {
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
  if (SLOT_OF(place) != OVERDUE) mark(SLOT_OF(place));
}

static u32 take(u32 slot) {
  if (slot != OVERDUE) clear(slot);
  return slot_take(slot);
}

static bool has_overdue(void) { return !is_empty(OVERDUE); }

// The first tick after `swept` at which an occupied slot is taken, or NEVER.
static Tick next_expiry_after(Tick swept) {
  Tick near = AT(next_in(0, swept)), far = AT(next_in(1, swept));
  return near < far ? near : far;
}

// The chains that a scan took, with the slot of each.
static u32 taken_head[LEVELS * SLOTS], taken_slot[LEVELS * SLOTS], taken;

static Tick take_due(Tick from, Tick to) {
  Tick next = NEVER;
  for (u32 level = 0; level < LEVELS; level++) {
    Place found = next_in(level, from);
    for (; AT(found) <= to; found = next_in(level, AT(found))) {
      taken_slot[taken] = SLOT_OF(found);
      taken_head[taken] = take(SLOT_OF(found));
      taken++;
    }
    if (AT(found) < next) next = AT(found);
  }
  return next;
}

// ---- The published tick of the sweep, and the wake-up.

static _Atomic Tick swept, until;
static _Atomic u32 woken;

#define FULL_FENCE() atomic_thread_fence(memory_order_seq_cst)

static Tick swept_get(void) { return LOAD(swept, RELAXED); }

static void publish(Tick tick) {
  STORE(swept, tick, RELAXED);
  if (FAULT != NO_FENCE_AFTER_PUBLISHING) FULL_FENCE();
}

static void wakeup_set(Tick at) {
  STORE(until, at, RELAXED);
  if (FAULT != NO_FENCE_BEFORE_RESTING) FULL_FENCE();
}

static void wakeup_clear(void) { STORE(until, 0, RELAXED); }

// The wake-up sets a word that the models read.
static void wakeup_check(Tick at) {
  if (FAULT != NOT_WOKEN && at < LOAD(until, RELAXED)) STORE(woken, 1, RELEASE);
}

// ---- The next scan of the shard, and its report.

static _Atomic Tick next_scan;
static _Atomic u32 reports;

static bool is_after(Tick at) { return at < LOAD(next_scan, RELAXED); }

static void next_scan_set(Tick tick) { STORE(next_scan, tick, RELAXED); }

static void reports_add(void) {
  if (!LOAD(reports, RELAXED)) atomic_fetch_or_explicit(&reports, 1, RELAXED);
}

// Whether the shard was reported.
static bool reports_accept(void) {
  return LOAD(reports, RELAXED) && atomic_exchange_explicit(&reports, 0, RELAXED);
}

static bool is_expected(Place place) { return SLOT_OF(place) != OVERDUE && !is_after(AT(place)); }

static void report(void) {
  if (FAULT == NO_FENCE_AFTER_THE_REPORT_OF_ANOTHER && LOAD(reports, RELAXED)) return;
  if (FAULT != NOT_REPORTED) reports_add();
  if (FAULT != NO_FENCE_AFTER_REPORTING) FULL_FENCE();
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

static void arm(Tick deadline) { STORE(state, STATE(1, deadline), RELEASE); }

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
static Tick half_way_to(Tick deadline, Tick swept) {
  return deadline > swept ? deadline - (deadline - swept) / 4 * 2 : deadline;
}

static bool has_passed(Place place, Tick swept) {
  return FAULT != NOT_RECHECKED && SLOT_OF(place) != OVERDUE && AT(place) <= swept;
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
    Place place = place_for(half_way_to(DEADLINE(seen), swept), swept);
    file(place, spare);
    if (held) set_next_visit(place, swept);
    if (FAULT != NO_FENCE_AFTER_FILING) FULL_FENCE();
    if (is_expected(place)) break;
    report();
    if (has_passed(place, swept_get())) continue;
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

static void ensure_reference(u32 generation, Tick deadline, u32 *spare) {
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
      ensure_reference(generation, deadline, spare);
    else
      refile_as(false, generation, spare);
    return true;
  }
}

// Inserts arm the generation 1.
static void report_filed(Place place, u32 *spare) {
  report();
  Tick swept = swept_get();
  if (has_passed(place, swept))
    refile(1, spare);
  else
    wakeup_check(SLOT_OF(place) == OVERDUE ? swept : AT(place));
}

static void file_armed(Place place, u32 *spare) {
  file(place, spare);
  if (FAULT != NO_FENCE_AFTER_FILING) FULL_FENCE();
  if (!is_expected(place)) report_filed(place, spare);
}

static void arm_and_file_slow(Tick deadline, u32 *spare) {
  Place place = place_for(deadline, swept_get());
  next_visit_store(AT(place));
  arm(deadline);
  file_armed(place, spare);
}

static void arm_and_file(Tick deadline, u32 *spare) {
  Place place = place_for(deadline, swept_get());
  u32 slot = SLOT_OF(place);
  if (slot == OVERDUE) {
    arm_and_file_slow(deadline, spare);
    return;
  }
  u32 head = LOAD(heads[slot], RELAXED);
  if (is_full(head)) {
    arm_and_file_slow(deadline, spare);
    return;
  }
  next_visit_store(AT(place));
  arm(deadline);
  if (push_reference(slot, head) != head) {
    file_armed(place, spare);
    return;
  }
  mark(slot);
  if (FAULT != NO_FENCE_AFTER_FILING) FULL_FENCE();
  if (is_after(AT(place))) report_filed(place, spare);
}

// Files a reference to another entry, which holds no timer, in a slot that is empty.
static void file_other(Place place, u32 block) {
  u32 slot = SLOT_OF(place), head = 0;
  STORE(references[block * REFERENCES], OTHER, RELAXED);
  TRY(heads[slot], head, HEAD(block, 1), ACQ_REL, RELAXED);
  mark(slot);
  if (FAULT != NO_FENCE_AFTER_FILING) FULL_FENCE();
  if (is_expected(place)) return;
  report();
  if (!has_passed(place, swept_get())) wakeup_check(AT(place));
}

// ---- What the sweeper knows of the shard. What is not atomic belongs to the sweeper.

static Tick reached; // the tick that this sweeper has reached
static Tick known;   // the next expiry of the shard
static bool overdue; // whether it has overdue references

static void set_known(Tick next) {
  known = next;
  next_scan_set(next);
}

static void note_filed(Tick at) {
  if (at < known) set_known(at);
}

static bool accept_reports(void) {
  if (!reports_accept()) return false;
  next_scan_set(NEVER);
  known = SUSPENDED;
  if (FAULT != NO_FENCE_AFTER_ACCEPTING) FULL_FENCE();
  return true;
}

static void note_outside(void) {
  if (has_overdue()) overdue = true;
}

static void scan_reported(void) {
  if (!accept_reports()) return;
  note_outside();
  set_known(next_expiry_after(reached));
}

static void scan_again(void) {
  if (FAULT != TIDIED_NOT_SUSPENDED) next_scan_set(NEVER);
  if (FAULT != NO_FENCE_AFTER_TIDYING) FULL_FENCE();
  set_known(next_expiry_after(reached));
}

static void advance(Tick tick) {
  Tick from = reached;
  if (known <= tick && FAULT != DUE_NOT_SUSPENDED) next_scan_set(NEVER);
  reached = tick;
  publish(tick);
  if (FAULT != NOT_ACCEPTED) accept_reports();
  if (known > tick) return;
  if (known == SUSPENDED) note_outside();
  set_known(take_due(from, tick));
}

// ---- Visits.

static u32 fired;
static u32 sweepers_spare = 12; // blocks 12 and on are the sweeper's
static Tick earliest = NEVER;   // the earliest expiry of a slot in which visits have filed

static void requeue(Place place) {
  file(place, &sweepers_spare);
  if (SLOT_OF(place) != OVERDUE && AT(place) < earliest) earliest = AT(place);
}

static void settle_next_visit(u32 ended, u32 slot) {
  if (slot == OVERDUE) return;
  Tick next_visit = next_visit_load();
  if (ended & REFILING)
    requeue(PLACE(slot, next_expiry_of(slot, reached)));
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
      requeue(PLACE(slot, kept));
    }
    if (!IS_ARMED(seen) || kept <= DEADLINE(seen)) return revalidated(seen);
  } else {
    Tick next_visit = next_visit_load();
    if (next_visit_compare_exchange(next_visit, AT(place)) != next_visit) return revalidate(seen);
  }
  requeue(place);
  return revalidated(seen);
}

static void visit(u32 slot) {
  u32 seen = state_load();
  while (seen != DONE) {
    if (IS_ARMED(seen) && DEADLINE(seen) <= reached) {
      u32 was = state_compare_exchange(seen, STATE(GENERATION(seen) + 1, 0) | (seen & REFILING));
      if (was == seen) {
        fired++;
        settle_next_visit(seen, slot);
        return;
      }
      seen = was;
    } else {
      u32 dropped = try_discard(seen, slot);
      seen = dropped == NEEDED ? try_requeue(seen, slot) : dropped;
    }
  }
}

// Whether a reference that was taken early has to be filed again.
static bool is_needed(u32 slot) {
  u32 seen = state_load();
  for (;;) {
    u32 dropped = try_discard(seen, slot);
    if (dropped == NEEDED) return true;
    if (dropped == DONE) return false;
    seen = dropped;
  }
}

// ---- The sweeper.

// Blocks with references that are not written yet: number, unread positions and slot of each.
static u32 kept_block[8], kept_positions[8], kept_slot[8], kept;

// Visits the references that are written, or files those again that were taken early. Returns the
// other positions.
static u32 read_written(u32 block, u32 positions, u32 slot, bool early) {
  for (u32 position = 0; position < REFERENCES; position++) {
    if (!(positions & 1u << position)) continue;
    u32 reference = LOAD(references[block * REFERENCES + position], ACQUIRE);
    if (reference == UNWRITTEN) continue;
    positions &= ~(1u << position);
    if (reference == OTHER) continue;
    if (!early)
      visit(slot);
    else if (is_needed(slot))
      file(PLACE(slot, next_expiry_of(slot, reached)), &sweepers_spare);
  }
  return positions;
}

// Reads all blocks of a chain.
static void read_chain(u32 head, u32 slot, bool early) {
  for (u32 count = COUNT(head); head; count = REFERENCES) {
    u32 block = BLOCK(head);
    head = next_block[block];
    u32 positions = read_written(block, (1u << count) - 1, slot, early);
    if (positions) {
      kept_block[kept] = block;
      kept_positions[kept] = positions;
      kept_slot[kept] = slot;
      kept++;
    }
  }
}

// Ends the visits to the references of a slot.
static void end_visits(void) {
  note_filed(earliest);
  earliest = NEVER;
}

static void visit_all(u32 head, u32 slot) {
  read_chain(head, slot, false);
  end_visits();
}

// Reads the first `count` of the kept blocks.
static void read_kept(u32 count) {
  if (FAULT == KEPT_NOT_CHECKED) return;
  for (u32 i = 0; i < count; i++) {
    kept_positions[i] = read_written(kept_block[i], kept_positions[i], kept_slot[i], false);
    end_visits();
  }
}

// Returns whether a reference was written to a kept block.
static bool has_news(void) {
  if (FAULT == KEPT_NOT_CHECKED) return false;
  for (u32 i = 0; i < kept; i++)
    for (u32 position = 0; position < REFERENCES; position++)
      if (kept_positions[i] & 1u << position &&
          LOAD(references[kept_block[i] * REFERENCES + position], RELAXED))
        return true;
  return false;
}

static void take_next(Tick end) {
  scan_reported();
  u32 unchecked = kept;
  advance(known < end ? known : end);
  for (u32 i = 0; i < taken; i++) visit_all(taken_head[i], taken_slot[i]);
  taken = 0;
  if (FAULT != KEPT_NOT_CHECKED_BY_A_STEP) read_kept(unchecked);
}

// Sweeps to tick `end`.
static void sweep(Tick end) {
  wakeup_clear();
  scan_reported();
  u32 unchecked = kept;
  if (overdue) visit_all(slot_take(OVERDUE), OVERDUE);
  overdue = false;
  if (FAULT != KEPT_NOT_CHECKED_WHEN_A_SWEEP_BEGINS) read_kept(unchecked);
  while (reached < end) take_next(end);
}

// Upkeep of one slot, and the end of that of the shard.
static void prune(u32 slot) {
  if (!is_empty(slot)) {
    Tick at = next_expiry_of(slot, reached);
    read_chain(take(slot), slot, true);
    note_filed(at);
  }
  scan_again();
}

static Tick next_expiry(void) {
  if (FAULT != NOT_ACCEPTED) scan_reported();
  return overdue || has_news() ? reached : known;
}

// Returns the tick until which the sweeper rests.
static Tick rest(void) {
  scan_reported();
  Tick next = known;
  for (;;) {
    wakeup_set(next);
    Tick again = next_expiry();
    if (again >= next) return next;
    next = again;
  }
}

// ---- Shared by the models.

// The sweep has reached this tick.
static void begin(Tick tick) {
  reached = tick;
  STORE(swept, tick, RELAXED);
  set_known(NEVER);
}

// A reference is in this slot, which was empty, and the sweeper knows of it.
static void put(u32 reference, u32 slot) {
  u32 block = slot; // the first four blocks are for this
  STORE(references[block * REFERENCES], reference, RELAXED);
  STORE(heads[slot], HEAD(block, 1), RELAXED);
  atomic_fetch_or_explicit(&occupied[LEVEL_OF(slot)], 1u << (slot & 1), RELAXED);
  note_filed(next_expiry_of(slot, reached));
}

// A timer of this deadline is armed. Its only reference is in this slot.
static void armed_in(u32 slot, Tick deadline) {
  STORE(state, STATE(1, deadline), RELAXED);
  STORE(next_visit_, next_expiry_of(slot, reached), RELAXED);
  put(ENTRY, slot);
}

// Sweeps to the deadline, or not at all if the sweep is there. The timer then has fired.
static void must_fire(Tick deadline) {
  sweep(deadline > reached ? deadline : reached);
  assert(fired == 1);
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
