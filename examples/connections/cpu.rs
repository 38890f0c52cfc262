//! The CPU time of a thread, on systems that report it (Linux).

/// The CPU seconds of all threads of this name, or `None` if the system does not report them.
pub(crate) fn seconds_of(name: &str) -> Option<f64> {
    let mut total = 0.0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let path = task.ok()?.path();
        let comm = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if comm.trim_end() == name {
            total += on_cpu(&path)?;
        }
    }
    Some(total)
}

fn on_cpu(task: &std::path::Path) -> Option<f64> {
    let schedstat = std::fs::read_to_string(task.join("schedstat")).ok()?;
    let nanos: f64 = schedstat.split_whitespace().next()?.parse().ok()?;
    Some(nanos / 1e9)
}
