//! [`Earliest`]: a tick for each shard, and the shards whose ticks are due.

#![forbid(unsafe_code)]

use crate::wheel::tick::Tick;

/// A tick for each shard, in a tournament tree.
#[derive(Debug)]
pub(super) struct Earliest {
    /// The root is at 1, and the children of the node at `n` are at `2 * n` and `2 * n + 1`. Each
    /// node is the minimum of its children. The second half are the leaves, one for each shard, and
    /// maybe more that are [`Tick::NEVER`].
    nodes: Box<[Tick]>,
}

impl Earliest {
    /// Sets the tick of each shard to [`Tick::NEVER`].
    pub(super) fn new(shards: usize) -> Self {
        Self { nodes: vec![Tick::NEVER; 2 * shards.next_power_of_two()].into() }
    }

    /// Returns the tick of a shard.
    pub(super) fn get(&self, shard: usize) -> Tick {
        self.nodes[self.leaves() + shard]
    }

    /// Sets the tick of a shard. O(log(shards)).
    pub(super) fn set(&mut self, shard: usize, tick: Tick) {
        let mut node = self.leaves() + shard;
        self.nodes[node] = tick;
        while node > 1 {
            node /= 2;
            let least = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
            if std::mem::replace(&mut self.nodes[node], least) == least {
                return;
            }
        }
    }

    /// Returns the first tick of all.
    pub(super) fn first(&self) -> Tick {
        self.nodes[1]
    }

    /// Returns the first shard from `shard` on whose tick is not after `tick`. O(log(shards)).
    #[inline]
    pub(super) fn due_from(&self, shard: usize, tick: Tick) -> Option<usize> {
        if self.first() > tick { None } else { self.search(shard, tick) }
    }

    fn search(&self, shard: usize, tick: Tick) -> Option<usize> {
        // For the first shard that is the root, which has all of them.
        let mut node = if shard == 0 { 1 } else { self.leaves() + shard };
        if node == self.nodes.len() {
            return None;
        }
        while self.nodes[node] > tick {
            // The right sibling of the node, or of the first ancestor that is a left child.
            node >>= node.trailing_ones();
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < self.leaves() {
            node *= 2;
            if self.nodes[node] > tick {
                node += 1;
            }
        }
        Some(node - self.leaves())
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Earliest;
    use crate::wheel::tick::Tick;

    #[test]
    fn the_shards_that_are_due_are_found_in_order() {
        for shards in [1, 2, 3, 5, 64, 256] {
            let mut random = fastrand::Rng::with_seed(shards as u64);
            let (mut earliest, mut ticks) = (Earliest::new(shards), vec![Tick::NEVER; shards]);
            for _ in 0..500 {
                let (shard, tick) = (random.usize(0..shards), Tick(random.u64(0..20)));
                let tick = if tick.0 == 0 { Tick::NEVER } else { tick };
                ticks[shard] = tick;
                earliest.set(shard, tick);
                assert_eq!(earliest.get(shard), tick);
                assert_eq!(earliest.first(), *ticks.iter().min().unwrap());
                let (from, by) = (random.usize(0..=shards), Tick(random.u64(0..20)));
                let due = (from..shards).find(|&shard| ticks[shard] <= by);
                assert_eq!(earliest.due_from(from, by), due);
            }
        }
    }
}
