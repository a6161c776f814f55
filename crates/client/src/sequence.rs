//! Recognises files that are read in sequence.
//!
//! **Model.** The kernel splits a read(2) into requests of up to 1 MiB, its own read-ahead adds more, and
//! several threads serve them in any order. So a file has *runs*: ranges that requests have covered without a
//! gap. A request extends the run that it adjoins at either end, and adjoining runs become one. A file is
//! read in sequence where its run is longer than one random read with the kernel's read-ahead:
//! [`SEQUENTIAL_BYTES_MIN`], or less for a run that begins with the file. A run that grows at its start is
//! read backward.
//!
//! **Strides.** A reader that skips the same distance again and again, such as one column of a matrix, makes
//! runs that begin at equal distances. After [`STRIDE_RECORDS_MIN`] of them the next ones are fetched ahead,
//! and nothing of what lies between them.
//!
//! **Assumes** that a random reader rarely continues where it has just read, or at an equal distance.
//!
//! **Promises** that recording is idempotent, since a call may be repeated, and that a file has at most
//! [`RUNS_PER_FILE_MAX`] runs: the one that was extended longest ago is discarded.

use crate::limits::{
    AHEAD_BYTES_MAX, AHEAD_BYTES_MIN, AHEAD_SHARE, GAP_BYTES_MAX, REORDERED_BYTES_MAX, RUNS_PER_FILE_MAX,
    SEQUENTIAL_BYTES_MIN, SEQUENTIAL_FROM_START_BYTES_MIN, STRIDE_AHEAD_RECORDS_MAX, STRIDE_RECORDS_MIN,
};

/// How much to read ahead of a request, and in which direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ReadAhead {
    /// This many bytes after it.
    Forward(u64),
    /// This many bytes before it.
    Backward(u64),
    /// The next records of a stride.
    Strided(Stride),
}

impl ReadAhead {
    /// As much of it as fits into so many bytes; `None` if that is less than `least`.
    pub(crate) fn within(self, bytes: u64, least: u64) -> Option<ReadAhead> {
        match self {
            _ if bytes < least => None,
            ReadAhead::Forward(wanted) => Some(ReadAhead::Forward(wanted.min(bytes))),
            ReadAhead::Backward(wanted) => Some(ReadAhead::Backward(wanted.min(bytes))),
            ReadAhead::Strided(stride) => {
                let ahead = stride.ahead.min(bytes / stride.len.max(1));
                (ahead > 0).then_some(ReadAhead::Strided(Stride { ahead, ..stride }))
            }
        }
    }
}

/// Records of a file at equal distances.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stride {
    /// Where the latest record begins.
    pub(crate) start: u64,
    /// Length of a record in bytes.
    pub(crate) len: u64,
    /// Bytes from the start of one record to the start of the next one.
    pub(crate) step: u64,
    /// How many records to fetch ahead.
    pub(crate) ahead: u64,
}

/// What is known of the distances at which runs began.
#[derive(Clone, Copy, Default, Debug)]
struct Steps {
    /// Where the latest run began.
    start: u64,
    /// Length of the run before it.
    len: u64,
    /// Its distance from the run before it.
    step: u64,
    /// How many runs began at that distance, one after the other.
    count: u64,
}

impl Steps {
    /// A run begins; `before` is the length to which the latest run has grown.
    fn begin(&mut self, start: u64, before: u64) {
        let step = start.checked_sub(self.start).filter(|step| *step > 0 && before <= *step);
        let count = match step {
            Some(step) if step == self.step => self.count + 1,
            _ => u64::from(step.is_some()),
        };
        *self = Steps { start, len: before, step: step.unwrap_or_default(), count };
    }

    /// The stride that a request belongs to.
    fn stride(&self, request: Run) -> Option<Stride> {
        let is_record = request.start >= self.start && request.end <= self.start.saturating_add(self.len);
        if self.count < STRIDE_RECORDS_MIN || !is_record {
            return None;
        }
        let ahead = (self.count / AHEAD_SHARE).min(AHEAD_BYTES_MAX / self.len.max(1));
        let ahead = ahead.clamp(1, STRIDE_AHEAD_RECORDS_MAX);
        Some(Stride { start: self.start, len: self.len, step: self.step, ahead })
    }
}

/// A range that requests have covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    start: u64,
    end: u64,
    /// Bytes by which it has grown at its start since it last grew at its end.
    backward: u64,
}

/// The runs of one file.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    /// In the order in which they were last extended.
    runs: Vec<Run>,
    steps: Steps,
}

impl Run {
    /// Whether a request extends this run at either end, or repeats its end.
    fn adjoins(&self, request: Run) -> bool {
        request.start <= self.end.saturating_add(GAP_BYTES_MAX)
            && request.start.saturating_add(REORDERED_BYTES_MAX) >= self.end
            && request.end.saturating_add(GAP_BYTES_MAX) >= self.start
    }

    /// Whether another run begins where this one ends, and is so short that its requests may have overtaken
    /// one of this run.
    fn is_continued_by(&self, later: Run) -> bool {
        self.adjoins(later)
            && later.start >= self.start
            && later.end <= self.end.saturating_add(REORDERED_BYTES_MAX)
    }

    /// Whether this run, which is longer than what requests may be reordered by, begins where another ends.
    fn is_preceded_by(&self, other: Run) -> bool {
        self.len() > REORDERED_BYTES_MAX
            && other.start < self.start
            && other.end <= self.start.saturating_add(GAP_BYTES_MAX)
            && other.end.saturating_add(GAP_BYTES_MAX) >= self.start
    }

    /// This run, extended by a range that was read now.
    fn with(self, other: Run) -> Run {
        let is_before = other.start < self.start && other.end <= self.start.saturating_add(GAP_BYTES_MAX);
        let backward = if is_before { self.backward + (self.start - other.start) } else { 0 };
        Run { start: self.start.min(other.start), end: self.end.max(other.end), backward }
    }

    fn ahead(&self) -> Option<ReadAhead> {
        let bound = |bytes: u64| bytes.clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        let len = self.len();
        match self.start <= GAP_BYTES_MAX {
            _ if self.backward > 0 => {
                let is_long = self.backward > SEQUENTIAL_BYTES_MIN;
                is_long.then(|| ReadAhead::Backward(bound(self.backward / AHEAD_SHARE)))
            }
            // Most programs that read a file from its start read all of it.
            true => (len > SEQUENTIAL_FROM_START_BYTES_MIN).then(|| ReadAhead::Forward(bound(2 * len))),
            false => (len > SEQUENTIAL_BYTES_MIN).then(|| ReadAhead::Forward(bound(len / AHEAD_SHARE))),
        }
    }

    fn len(&self) -> u64 {
        self.end - self.start
    }
}

impl Sequences {
    /// Records a request. `Some` if it belongs to a sequence: how much to read ahead. That grows with the
    /// sequence, so that a short one costs little.
    pub(crate) fn record(&mut self, offset: u64, len: u64) -> Option<ReadAhead> {
        let request = Run { start: offset, end: offset.saturating_add(len), backward: 0 };
        let holds = |run: &Run| run.start <= request.start && request.end <= run.end;
        if let Some(at) = self.runs.iter().rposition(|run| run.backward > 0 && holds(run)) {
            // A range that was read backward is read again, or the request was recorded before.
            let run = self.runs.remove(at);
            self.runs.push(run);
            return run.ahead();
        }
        let mut run = match self.runs.iter().rposition(|run| run.adjoins(request)) {
            Some(at) => self.runs.remove(at).with(request),
            None => {
                let latest = self.runs.iter().find(|run| run.start == self.steps.start);
                self.steps.begin(request.start, latest.map_or(0, Run::len));
                request
            }
        };
        let joins = |run: Run, other: &Run| {
            run.is_continued_by(*other) || other.is_continued_by(run) || other.is_preceded_by(run)
        };
        while let Some(at) = self.runs.iter().position(|other| joins(run, other)) {
            let other = self.runs.remove(at);
            // The longer one is the sequence.
            run = if run.len() < other.len() { other.with(run) } else { run.with(other) };
        }
        if self.runs.len() >= RUNS_PER_FILE_MAX {
            self.runs.remove(0);
        }
        self.runs.push(run);
        run.ahead().or_else(|| self.steps.stride(request).map(ReadAhead::Strided))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    /// Requests into which the kernel splits a read.
    const REQUEST: u64 = 128 * KIB;

    /// Offsets below a bound, the same in each run of the test, aligned to a size.
    fn offsets(below: u64, align: u64, count: usize) -> impl Iterator<Item = u64> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..count).map(move |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 20) % (below / align) * align
        })
    }

    /// Records a read(2) as requests, each twice; `swapped`: in each pair of requests the second comes first.
    fn read(file: &mut Sequences, offset: u64, len: u64, swapped: bool) -> Option<ReadAhead> {
        let mut requests: Vec<u64> = (0..len.div_ceil(REQUEST)).map(|n| offset + n * REQUEST).collect();
        if swapped {
            requests.chunks_mut(2).for_each(<[u64]>::reverse);
        }
        let mut last = None;
        for start in requests {
            let length = REQUEST.min(offset + len - start);
            let first = file.record(start, length);
            last = file.record(start, length);
            assert_eq!(first, last, "recording a request twice changes nothing");
        }
        last
    }

    #[test]
    fn read_ahead_is_cut_to_what_a_stream_may_have() {
        let stride = |ahead| ReadAhead::Strided(Stride { start: 0, len: MIB, step: 9 * MIB, ahead });
        assert_eq!(ReadAhead::Forward(8 * MIB).within(3 * MIB, MIB), Some(ReadAhead::Forward(3 * MIB)));
        assert_eq!(ReadAhead::Backward(MIB).within(3 * MIB, MIB), Some(ReadAhead::Backward(MIB)));
        assert_eq!(stride(16).within(3 * MIB, MIB), Some(stride(3)));
        assert_eq!(ReadAhead::Forward(MIB).within(MIB - 1, MIB), None);
    }

    #[test]
    fn random_reads_are_no_sequence_whatever_their_size_and_order() {
        for size in [4 * KIB, 64 * KIB, 256 * KIB, MIB] {
            for swapped in [false, true] {
                let mut file = Sequences::default();
                let sequential = offsets(4096 * MIB, size, 2000)
                    .filter(|offset| *offset > 0 && read(&mut file, *offset, size, swapped).is_some());
                assert_eq!(sequential.count(), 0, "reads of {size} bytes, swapped: {swapped}");
            }
        }
    }

    #[test]
    fn few_random_reads_of_a_small_file_count_as_a_sequence() {
        let mut file = Sequences::default();
        let reads = offsets(64 * MIB, 256 * KIB, 4000);
        let sequential = reads.filter(|offset| read(&mut file, *offset, 256 * KIB, true).is_some()).count();
        assert!(sequential < 40, "{sequential} of 4000");
    }

    #[test]
    fn file_read_from_its_start_is_a_sequence_soon() {
        for swapped in [false, true] {
            let mut file = Sequences::default();
            let first = (0..64).find(|n| read(&mut file, n * 256 * KIB, 256 * KIB, swapped).is_some());
            assert_eq!(first, Some(SEQUENTIAL_FROM_START_BYTES_MIN / (256 * KIB)), "swapped: {swapped}");
        }
    }

    #[test]
    fn sequence_in_the_middle_of_a_file_is_recognised_after_several_reads() {
        for (size, swapped) in [(64 * KIB, false), (256 * KIB, true), (MIB, true)] {
            let mut file = Sequences::default();
            let from = 1000 * MIB + 12 * KIB;
            let first = (0..64).find(|n| read(&mut file, from + n * size, size, swapped).is_some());
            assert_eq!(first, Some(SEQUENTIAL_BYTES_MIN / size), "reads of {size} bytes");
        }
    }

    #[test]
    fn sequence_goes_on_over_what_the_kernel_has_in_its_cache() {
        let mut file = Sequences::default();
        for n in 0..64 {
            let ahead = file.record(n * (MIB + GAP_BYTES_MAX), MIB);
            assert_eq!(ahead.is_some(), n * MIB + MIB > SEQUENTIAL_FROM_START_BYTES_MIN);
        }
        assert_eq!(file.record(500 * MIB, MIB), None, "it does not go on over more");
    }

    #[test]
    fn interleaved_streams_are_each_a_sequence() {
        let mut file = Sequences::default();
        // A request that overtakes another one has a run of its own for a moment.
        let streams = RUNS_PER_FILE_MAX as u64 - 1;
        for n in 0..64 {
            for stream in 0..streams {
                let ahead =
                    read(&mut file, (stream * 1000 + 500) * MIB + n * 256 * KIB, 256 * KIB, n % 2 == 0);
                assert_eq!(
                    ahead.is_some(),
                    (n + 1) * 256 * KIB > SEQUENTIAL_BYTES_MIN,
                    "stream {stream}, {n}"
                );
            }
        }
        assert!(file.runs.len() <= RUNS_PER_FILE_MAX);
    }

    #[test]
    fn random_reads_are_no_sequence_where_the_file_was_read_in_sequence_before() {
        let mut file = Sequences::default();
        for n in 0..1024 {
            file.record(n * MIB, MIB);
        }
        let reads = offsets(1000 * MIB, 256 * KIB, 500).filter(|offset| *offset > 0);
        assert_eq!(reads.filter(|offset| read(&mut file, *offset, 256 * KIB, true).is_some()).count(), 0);
    }

    #[test]
    fn records_at_equal_distances_are_fetched_ahead() {
        for (size, step) in
            [(64 * KIB, 200 * KIB), (256 * KIB, MIB), (2 * MIB, 16 * MIB), (60 * KIB, 8 * MIB)]
        {
            let mut file = Sequences::default();
            let strided = (0..256).filter(|n| {
                let start = 500 * MIB + n * step;
                let ahead = read(&mut file, start, size, false);
                let Some(ReadAhead::Strided(stride)) = ahead else {
                    assert_eq!(ahead, None, "records of {size} bytes at distances of {step}");
                    return false;
                };
                assert_eq!((stride.start, stride.len, stride.step), (start, size, step));
                assert!(stride.ahead <= (n / AHEAD_SHARE).max(1), "{stride:?} after {n} records");
                assert!(stride.ahead * size <= AHEAD_BYTES_MAX);
                true
            });
            assert_eq!(strided.count() as u64, 256 - STRIDE_RECORDS_MIN);
            // The reader goes elsewhere.
            assert_eq!(read(&mut file, 7 * MIB, size, false), None);
        }
    }

    #[test]
    fn file_read_again_from_its_start_is_a_sequence_again() {
        let mut file = Sequences::default();
        for _ in 0..2 {
            for n in 0..256 {
                let ahead = file.record(n * 256 * KIB, 256 * KIB);
                assert_eq!(ahead.is_some(), (n + 1) * 256 * KIB > SEQUENTIAL_FROM_START_BYTES_MIN, "{n}");
            }
        }
    }

    #[test]
    fn read_ahead_grows_with_the_sequence() {
        let mut file = Sequences::default();
        let ahead: Vec<ReadAhead> = (0..64).filter_map(|n| file.record(n * MIB, MIB)).collect();
        let [first, last] = [2 * MIB, AHEAD_BYTES_MAX].map(ReadAhead::Forward);
        assert_eq!((ahead.first(), ahead.last()), (Some(&first), Some(&last)));
        assert!(ahead.is_sorted());
        let mut file = Sequences::default();
        let middle: Vec<ReadAhead> = (0..64).filter_map(|n| file.record((1000 + n) * MIB, MIB)).collect();
        let [first, last] = [AHEAD_BYTES_MIN, 64 * MIB / AHEAD_SHARE].map(ReadAhead::Forward);
        assert_eq!((middle.first(), middle.last()), (Some(&first), Some(&last)));
        assert!(middle.is_sorted());
    }

    #[test]
    fn a_file_read_backward_is_fetched_backward() {
        for (size, swapped) in [(128 * KIB, false), (MIB, false), (MIB, true), (4 * MIB, true)] {
            let mut file = Sequences::default();
            let count = 64 * MIB / size;
            let ahead: Vec<_> = (0..count)
                .rev()
                .filter_map(|n| read(&mut file, 1000 * MIB + n * size, size, swapped))
                .collect();
            let backward =
                ahead.iter().filter(|ahead| matches!(ahead, ReadAhead::Backward(_))).count() as u64;
            let late = 2 * (SEQUENTIAL_BYTES_MIN + REORDERED_BYTES_MAX) / size + 3;
            assert!(backward + late >= count, "{backward} of {count} reads of {size}, swapped: {swapped}");
            assert_eq!(ahead.last(), Some(&ReadAhead::Backward(ahead_of(&file))), "reads of {size}");
            // The reader turns round.
            let turned = (0..16).filter_map(|n| read(&mut file, 1064 * MIB + n * MIB, MIB, swapped)).last();
            assert!(matches!(turned, Some(ReadAhead::Forward(_))), "{turned:?}");
        }
    }

    #[test]
    fn a_file_read_backward_in_large_requests_is_fetched_backward() {
        let mut file = Sequences::default();
        let ahead: Vec<_> =
            (0..64).rev().map(|n| (n, file.record(n * MIB, MIB), file.record(n * MIB, MIB))).collect();
        let backward =
            ahead.iter().filter(|(_, ahead, _)| matches!(ahead, Some(ReadAhead::Backward(_)))).count();
        assert!(backward >= 60, "{backward} of 64");
    }

    fn ahead_of(file: &Sequences) -> u64 {
        let backward = file.runs.last().map_or(0, |run| run.backward);
        (backward / AHEAD_SHARE).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX)
    }

    #[test]
    fn offsets_at_the_end_of_what_a_file_can_have_overflow_nothing() {
        let mut file = Sequences::default();
        assert_eq!(file.record(u64::MAX - 10, 100), None);
        assert_eq!(file.record(u64::MAX, 100), None);
    }
}
