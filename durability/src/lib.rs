//! Durable timers at full size: programs that put them under faults, and that measure them.
