//! How much memory the host has left.

use std::fs;

/// What the kernel and the control group still give, in bytes; `None` where neither says.
#[must_use]
pub fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| in_meminfo(&text));
    let number = |name: &str| fs::read_to_string(name).ok()?.trim().parse::<u64>().ok();
    // "max" is no number: no limit.
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map(|(most, used)| most.saturating_sub(used));
    machine.into_iter().chain(group).min()
}

fn in_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_number_is_read() {
        assert_eq!(in_meminfo("MemTotal:  9 kB\nMemAvailable:   12 kB\n"), Some(12 * 1024));
        assert_eq!(in_meminfo("MemTotal:  9 kB\n"), None);
    }
}
