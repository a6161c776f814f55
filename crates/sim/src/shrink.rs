//! Removes what a failure does not need from a plan.

use crate::plan::Plan;
use crate::world::run;

/// The smallest plan found that still fails.
pub fn shrink(plan: &Plan) -> Plan {
    let fails = |plan: &Plan| !run(plan, false, tracing::Level::ERROR).findings.is_empty();
    let mut small = plan.clone();
    let mut at = 0;
    while at < small.faults.len() {
        let mut without = small.clone();
        without.faults.remove(at);
        match fails(&without) {
            true => small = without,
            false => at += 1,
        }
    }
    while small.rounds > 1 {
        let shorter = Plan { rounds: small.rounds - 1, ..small.clone() };
        if !fails(&shorter) {
            break;
        }
        small = shorter;
    }
    small
}
