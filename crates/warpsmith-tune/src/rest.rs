//! How a device rests, so that a hot one decides like a cool one.

use std::time::Duration;

/// How the device rests before two kernels are compared.
///
/// A chip that was busy lowers its clock for power and heat, and not every kernel minds as much as the other: of two that
/// are compared on a hot one, another may win than in an engine's burst. So before each comparison the device rests, for
/// as long as [`Rest::duty`] says of what it was busy since the last one; before
/// the first, since nobody knows what was before, for half of [`Rest::most`], which is more than any other begins with. Then
/// a kernel of the comparison is timed shortly. Where that takes longer than its shortest time so far by more than
/// [`Rest::WARMER`], the device is warmer than it was, and rests again, twice as long each time, up to [`Rest::most`] in all.
/// A device that is no cooler then is taken as it is.
///
/// Rests count against the limit of a tuning, and stand in its [`Outcome`](crate::Outcome).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rest {
    /// Of the time between comparisons, the share in which kernels are timed at most: above 0, to 1.
    pub duty: f64,
    /// The shortest rest.
    pub least: Duration,
    /// What all rests before one comparison take at most.
    pub most: Duration,
}

impl Rest {
    /// A quarter of the time busy, at least 50 ms of rest, at most a second before each comparison: a duel takes some
    /// 30 ms, as long as a serving engine's burst, and what went before it was three times as long ago.
    pub const NORMAL: Rest = Rest { duty: 0.25, least: Duration::from_millis(50), most: Duration::from_secs(1) };
    /// None.
    pub const NONE: Rest = Rest { duty: 1.0, least: Duration::ZERO, most: Duration::ZERO };
    /// How much longer, as a share, a short timing may take than the shortest so far of the same kernel. On a device that
    /// is left alone they are within that of each other.
    pub const WARMER: f64 = 0.03;

    /// As [`Rest::NORMAL`] with this share of the time busy; without rests, if it is 1.
    #[must_use]
    pub fn duty(duty: f64) -> Self {
        if duty >= 1.0 { Self::NONE } else { Self { duty, ..Self::NORMAL } }
    }

    /// What is due after the device was busy for so long, if that is known.
    pub(super) fn due(&self, busy: Option<Duration>) -> Duration {
        let share = self.duty.clamp(0.01, 1.0);
        let due = busy.map_or(self.most, |busy| busy.mul_f64(1.0 / share - 1.0));
        due.max(self.least).min(self.most / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_keeps_the_duty_within_its_bounds() {
        let ms = Duration::from_millis;
        let due = |busy| Rest::NORMAL.due(Some(ms(busy)));
        assert_eq!([due(0), due(10), due(40), due(2000)], [ms(50), ms(50), ms(120), ms(500)]);
        assert_eq!(Rest::NORMAL.due(None), ms(500));
        assert_eq!(Rest::duty(0.5).due(Some(ms(100))), ms(100));
        assert_eq!(Rest::duty(1.0), Rest::NONE);
        assert_eq!([Rest::NONE.due(Some(ms(100))), Rest::NONE.due(None)], [Duration::ZERO; 2]);
        // Whatever is said, it ends.
        for duty in [0.0, -1.0, f64::MIN_POSITIVE] {
            assert_eq!(Rest::duty(duty).due(Some(ms(100))), ms(500));
        }
    }
}
