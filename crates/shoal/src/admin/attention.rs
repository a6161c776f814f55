//! What needs an administrator's attention, or some seconds, as sentences: the reason for exit code 1 of
//! `cluster status`.

use super::VolumeState;
use super::reports::{ClusterReport, VolumeHealth};
use crate::limits::FULL_BRICKS_NAMED_MAX;

impl ClusterReport {
    /// Fills in what needs attention.
    pub fn with_attention(mut self) -> ClusterReport {
        let away = self.nodes.iter().filter(|node| !node.connected);
        let mut found: Vec<String> =
            away.map(|node| format!("node {} ({}) does not answer", node.name, node.address)).collect();
        for replica in self.map.iter().filter(|replica| !replica.online) {
            found.push(format!(
                "the cluster map's replica on {} does not run: {}",
                replica.node, replica.role
            ));
        }
        let started = self.volumes.iter().filter(|volume| volume.state == VolumeState::Started);
        found.extend(started.flat_map(troubles));
        self.attention = found;
        self
    }
}

fn troubles(volume: &VolumeHealth) -> Vec<String> {
    let mut found = Vec::new();
    let name = &volume.name;
    if volume.replicas_online < volume.replicas {
        found.push(format!(
            "volume {name}: {} of {} metadata replicas run; a replica catches up within seconds of its node's return",
            volume.replicas_online, volume.replicas
        ));
    }
    if !volume.has_leader {
        let majority = volume.replicas / 2 + 1;
        found.push(match volume.replicas_online >= majority {
            true => format!("volume {name}: its metadata have no leader yet; an election takes a few seconds"),
            false => format!("volume {name}: its metadata have no leader, and cannot elect one before {majority} replicas run"),
        });
    }
    if volume.bricks_online < volume.bricks {
        found.push(format!(
            "volume {name}: {} of {} bricks are online; `shoal volume status {name}` says what the others lack, and \
             `shoal volume replace-brick` replaces one that is lost",
            volume.bricks_online, volume.bricks
        ));
    }
    if let Some(said) = full(volume) {
        found.push(said);
    }
    match volume.degraded {
        Some(0) => {}
        Some(blocks) => found.push(format!(
            "volume {name}: {blocks} blocks lack copies and are being healed; `shoal volume heal {name} info` shows how far"
        )),
        None if volume.has_leader => found.push(format!(
            "volume {name}: its leader has not looked yet which blocks lack copies; it does within seconds of its election or of a change"
        )),
        None => {}
    }
    found
}

/// Which bricks are full, and what to do.
fn full(volume: &VolumeHealth) -> Option<String> {
    let name = &volume.name;
    let all: Vec<String> = volume.full_bricks.iter().map(ToString::to_string).collect();
    let more = match all.len().saturating_sub(FULL_BRICKS_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = all.get(..FULL_BRICKS_NAMED_MAX).unwrap_or(&all).join(", ");
    (!all.is_empty()).then(|| {
        format!(
            "volume {name}: full, and taking no more blocks: {named}{more}; make room on the disk, or delete files, or \
             `shoal volume add-brick {name} HOST:/BRICK` and then `shoal volume rebalance {name} start`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::BrickName;

    fn health(change: impl FnOnce(&mut VolumeHealth)) -> Vec<String> {
        let mut volume = VolumeHealth {
            name: "web".into(),
            state: VolumeState::Started,
            bricks_online: 3,
            bricks: 3,
            replicas_online: 3,
            replicas: 3,
            has_leader: true,
            degraded: Some(0),
            full_bricks: Vec::new(),
        };
        change(&mut volume);
        let report = ClusterReport {
            cluster: String::new(),
            epoch: 1,
            node: "n1".into(),
            nodes: Vec::new(),
            map: Vec::new(),
            volumes: vec![volume],
            deleting: Vec::new(),
            attention: Vec::new(),
        };
        report.with_attention().attention
    }

    fn bricks(count: usize) -> Vec<BrickName> {
        (1..=count).map(|n| format!("n{n}:/b").parse().unwrap()).collect()
    }

    #[test]
    fn every_reason_for_attention_is_said_and_a_healthy_volume_has_none() {
        assert_eq!(health(|_| ()), Vec::<String>::new());
        type Change = fn(&mut VolumeHealth);
        let cases: [(Change, &str); 8] = [
            (|volume| volume.bricks_online = 2, "2 of 3 bricks"),
            (|volume| volume.replicas_online = 2, "2 of 3 metadata replicas"),
            (|volume| (volume.has_leader, volume.degraded) = (false, None), "no leader yet"),
            (|volume| volume.degraded = Some(7), "7 blocks lack copies"),
            (|volume| volume.full_bricks = bricks(1), "taking no more blocks: n1:/b; make room"),
            (|volume| volume.full_bricks = bricks(5), "n1:/b, n2:/b, n3:/b and 2 more; "),
            (|volume| volume.degraded = None, "has not looked yet"),
            (
                |volume| (volume.has_leader, volume.degraded, volume.replicas_online) = (false, None, 1),
                "before 2 replicas run",
            ),
        ];
        for (change, said) in cases {
            let found = health(change);
            assert!(found.iter().any(|line| line.contains(said)), "{said}: {found:?}");
        }
        assert_eq!(
            health(|volume| (volume.state, volume.has_leader) = (VolumeState::Stopped, false)).len(),
            0
        );
    }
}
