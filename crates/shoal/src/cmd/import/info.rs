//! What `gluster volume info` prints, and what glusterd keeps in `/var/lib/glusterd/vols/NAME/info`.

use super::plan::{Plan, Redundancy};

/// Keys of glusterd's file that describe the volume itself; every other key with a dot is an option.
const BRICK: &str = "brick-";

fn plan(name: &str, redundancy: Redundancy, bricks: Vec<String>, options: Vec<(String, String)>) -> Plan {
    let notes = bricks.iter().map(|brick| (brick.clone(), "a brick".to_owned())).collect();
    Plan { name: Some(name.to_owned()), redundancy, bricks, options, notes }
}

/// The text of `gluster volume info NAME`: one volume.
pub fn of_text(text: &str) -> Result<Plan, String> {
    let (mut name, mut kind, mut layout, mut bricks, mut options) = (None, "", "", Vec::new(), Vec::new());
    let mut in_options = false;
    for line in text.lines().map(str::trim) {
        let Some((key, value)) = line.split_once(':').map(|(key, value)| (key.trim(), value.trim())) else {
            continue;
        };
        match key {
            "Volume Name" if name.is_some() => {
                return Err("name one volume: `gluster volume info NAME`".into());
            }
            "Volume Name" => name = Some(value),
            "Type" => kind = value,
            "Number of Bricks" => layout = value,
            "Options Reconfigured" => in_options = true,
            _ if in_options => options.push((key.to_owned(), value.to_owned())),
            _ if key.strip_prefix("Brick").is_some_and(|number| number.parse::<u32>().is_ok()) => {
                let place = value.split_whitespace().next().unwrap_or_default();
                bricks.push(place.to_owned());
            }
            _ => {}
        }
    }
    let name = name.ok_or("it does not say `Volume Name:`")?;
    if bricks.is_empty() {
        return Err(format!("volume {name} has no line `Brick1: HOST:/PATH`"));
    }
    Ok(plan(name, by_layout(kind, layout)?, bricks, options))
}

/// `Distributed-Replicate` and `2 x 3 = 6`; `1 x (2 + 1) = 3` with an arbiter; `1 x (4 + 2) = 6` of shards.
fn by_layout(kind: &str, layout: &str) -> Result<Redundancy, String> {
    let wrong = || format!("`Number of Bricks: {layout}` is not understood");
    let sets = layout.split('=').next().unwrap_or_default();
    let set = sets.split_once('x').map_or(sets, |(_, set)| set).trim().trim_matches(['(', ')']);
    let number = |word: &str| word.trim().parse::<u32>().map(|number| number as usize);
    let numbers: Result<Vec<usize>, _> = set.split('+').map(number).collect();
    match (kind, &numbers.map_err(|_| wrong())?[..]) {
        ("Distribute", _) => Ok(Redundancy::Copies { all: 1, arbiters: 0 }),
        ("Replicate" | "Distributed-Replicate", [copies]) => {
            Ok(Redundancy::Copies { all: (*copies).max(1), arbiters: 0 })
        }
        ("Replicate" | "Distributed-Replicate", [data, arbiters]) => {
            Ok(Redundancy::Copies { all: (data + arbiters).max(1), arbiters: *arbiters })
        }
        ("Disperse" | "Distributed-Disperse", [data, parity]) => {
            Ok(Redundancy::Shards { all: data + parity, parity: *parity })
        }
        ("Replicate" | "Distributed-Replicate" | "Disperse" | "Distributed-Disperse", _) => Err(wrong()),
        (other, _) => Err(format!("there are no volumes of type {other}")),
    }
}

/// glusterd's `info` file of a volume of this name.
pub fn of_glusterd(name: &str, text: &str) -> Result<Plan, String> {
    let pairs: Vec<(&str, &str)> = text.lines().filter_map(|line| line.trim().split_once('=')).collect();
    let number = |key: &str| {
        pairs.iter().find(|(known, _)| *known == key).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    };
    let mut bricks: Vec<(usize, String)> = Vec::new();
    for (key, value) in &pairs {
        let Some(index) = key.strip_prefix(BRICK).and_then(|index| index.parse().ok()) else { continue };
        // node1:-srv-web stands for node1:/srv/web; a dash of the path is not told from a slash.
        let (host, path) = value.split_once(':').ok_or_else(|| format!("{key}={value} is no brick"))?;
        bricks.push((index, format!("{host}:{}", path.replace('-', "/"))));
    }
    if bricks.is_empty() {
        return Err("it has no line brick-0=HOST:-PATH".into());
    }
    bricks.sort_unstable();
    let bricks = bricks.into_iter().map(|(_, brick)| brick).collect();
    let options = pairs.iter().filter(|(key, _)| key.contains('.') && !key.starts_with(BRICK));
    let options = options.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let redundancy = match number("disperse_count") {
        0 => Redundancy::Copies { all: number("replica_count").max(1), arbiters: number("arbiter_count") },
        all => Redundancy::Shards { all, parity: number("redundancy_count") },
    };
    Ok(plan(name, redundancy, bricks, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_info_of_each_type_is_understood() {
        let text = |kind: &str, layout: &str| {
            format!(
                "\nVolume Name: web\nType: {kind}\nVolume ID: 1\nStatus: Started\nNumber of Bricks: {layout}\n\
                 Transport-type: tcp\nBricks:\nBrick1: n1:/srv/web\nBrick2: n2:/srv/web (arbiter)\nOptions Reconfigured:\n\
                 nfs.disable: on\nauth.allow: 10.0.0.0/8\n"
            )
        };
        for (kind, layout, words) in [
            ("Distribute", "2", "replica 1"),
            ("Replicate", "1 x 2 = 2", "replica 2"),
            ("Distributed-Replicate", "2 x 3 = 6", "replica 3"),
            ("Replicate", "1 x (2 + 1) = 3", "replica 2 arbiter 1"),
            ("Disperse", "1 x (4 + 2) = 6", "disperse 6 redundancy 2"),
        ] {
            let plan = of_text(&text(kind, layout)).expect(kind);
            assert_eq!(plan.redundancy.to_string(), words, "{kind}");
            assert_eq!(plan.bricks, ["n1:/srv/web", "n2:/srv/web"]);
            assert_eq!(plan.options[1], ("auth.allow".to_owned(), "10.0.0.0/8".to_owned()));
        }
        for (text, why) in [
            (text("Stripe", "1 x 2 = 2"), "type Stripe"),
            (text("Replicate", "many"), "not understood"),
            ("Type: Replicate".to_owned(), "Volume Name"),
            ("Volume Name: v\nType: Distribute\n".to_owned(), "no line `Brick1"),
            ("Volume Name: v\nVolume Name: w\n".to_owned(), "one volume"),
        ] {
            let error = of_text(&text).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn file_of_glusterd_is_understood() {
        let text = "type=2\ncount=3\nreplica_count=3\narbiter_count=1\ndisperse_count=0\nredundancy_count=0\n\
                    performance.cache-size=64MB\nbrick-1=n2:-srv-web\nbrick-0=n1:-srv-web\nbrick-2=n3:-srv-web\n";
        let plan = of_glusterd("web", text).expect("it is right");
        assert_eq!(plan.redundancy.to_string(), "replica 2 arbiter 1");
        assert_eq!(plan.bricks, ["n1:/srv/web", "n2:/srv/web", "n3:/srv/web"]);
        assert_eq!(plan.options, [("performance.cache-size".to_owned(), "64MB".to_owned())]);
        assert!(of_glusterd("web", "type=2\n").expect_err("no bricks").contains("brick-0"));
    }
}
