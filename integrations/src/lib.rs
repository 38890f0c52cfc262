//! Only tests and examples: what they share.
