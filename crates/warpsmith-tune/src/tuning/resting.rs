//! The device rests before a comparison, until it is as cool as it was.

use std::time::Duration;

use super::Tuning;
use crate::{Measure, Rest};
use warpsmith::Result;

impl Tuning<'_> {
    /// Asks the measurer for a timing, which keeps the device busy.
    pub(super) fn busy<T>(&mut self, time: impl FnOnce(&mut dyn Measure) -> Result<T>) -> Result<T> {
        let begun = self.around.clock.now();
        let timed = time(&mut *self.around.measurer);
        let took = self.around.clock.now().saturating_sub(begun);
        self.busy = self.busy.map(|busy| busy + took);
        timed
    }

    /// Lets the device rest before an entry is compared, `times` as long as is due; and on, while a short timing of the
    /// entry says that the device is warmer than it was. Ends with the time that there is.
    pub(super) fn rest_before(&mut self, place: usize, times: u32) -> Result<()> {
        let rest = self.around.settings.rest;
        let mut wait = rest.due(self.busy) * times;
        let mut left = rest.most;
        loop {
            wait = wait.min(left).min(self.left());
            if wait.is_zero() {
                return Ok(());
            }
            self.around.clock.rest(wait);
            (self.rested, self.busy) = (self.rested + wait, Some(Duration::ZERO));
            left -= wait;
            if self.left().is_zero() {
                return Ok(());
            }
            let Some(us) = self.time(place)? else { return Ok(()) };
            let coolest = &mut self.entries[place].coolest;
            if us <= *coolest * (1.0 + Rest::WARMER) {
                *coolest = us.min(*coolest);
                return Ok(());
            }
            if left.is_zero() {
                // As cool as it gets.
                *coolest = us;
                return Ok(());
            }
            wait *= 2;
        }
    }
}
