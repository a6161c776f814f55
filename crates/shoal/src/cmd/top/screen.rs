//! Draws what `shoal top` knows. Pure: a state and the time in, a screen out.

use super::columns::{self, Column};
use super::state::{Point, Shown, Sort, State, sorted, sorted_files};
use crate::rates::Row as Line;
use crate::show;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Block, Cell, Clear, Paragraph, RenderDirection, Row, Sparkline, Table};

/// Columns of the figures beside a chart.
const LABEL_WIDTH: u16 = 36;
/// From this height on, a chart has two lines.
const TALL: u16 = 34;
/// From this width on, the mounts of files have more room.
const WIDE: u16 = 110;

const KEYS: &str = " q quit  ? help  p pause  o/r/w/l sort  d directories  Tab volume";

const HELP: &[&str] = &[
    "q, Esc     quit",
    "?          this help",
    "p, Space   pause, and go on",
    "o          sort by operations per second",
    "r, w       sort by bytes read, or written",
    "l          sort by mean latency",
    "d          files, or their directories",
    "1-9, Tab   another volume",
    "",
    "Charts and the first line of figures are all mounts",
    "together. Latencies of mounts are those of their",
    "kernel's requests, network included; of bricks, those",
    "of the disk. p99: 99 of 100 took less, to a power of 2.",
    "MB: 1,000,000 bytes.",
];

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// Draws everything.
pub fn draw(frame: &mut Frame, state: &State, now_unix_s: u64) {
    let area = frame.area();
    let chart_lines = if area.height >= TALL { 2 } else { 1 };
    let [head, notes, charts, tables, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(5 * chart_lines),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    let shown = state.shown();
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(title(state, now_unix_s, area.width)).style(reversed), head);
    let notes_text = state.notes_at(now_unix_s).join("; ");
    frame.render_widget(
        Paragraph::new(format!(" {}", show::runnable(&notes_text))).style(Style::new().fg(Color::Red)),
        notes,
    );
    draw_charts(frame, shown, charts, chart_lines);
    draw_tables(frame, state, tables);
    frame.render_widget(Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::DIM)), keys);
    if state.help {
        draw_help(frame, shown, area);
    }
}

/// The first line: where one is, and when.
fn title(state: &State, now_unix_s: u64, width: u16) -> String {
    let shown = state.shown();
    let mut left = format!(" shoal top  {}", shown.volume.as_deref().unwrap_or("(no volume)"));
    let at = shown.volumes.iter().position(|name| Some(name) == shown.volume.as_ref());
    if let Some(at) = at.filter(|_| shown.volumes.len() > 1) {
        left.push_str(&format!(" ({} of {})", at + 1, shown.volumes.len()));
    }
    if let (Some(node), Some(cluster)) = (&shown.node, &shown.cluster) {
        let short: String = cluster.chars().take(8).collect();
        left.push_str(&format!("  cluster {short}  {} nodes, asked {node}", shown.nodes));
    }
    let time = show::date(if state.is_paused() { shown.at.unwrap_or(now_unix_s) } else { now_unix_s });
    let time = time.split(' ').nth(1).unwrap_or_default();
    let paused = if state.is_paused() { "PAUSED  " } else { "" };
    let right = format!("{paused}{time} UTC ");
    let room = usize::from(width).saturating_sub(right.chars().count());
    let left = fit(&left, room);
    let gap = room.saturating_sub(Span::raw(left.as_str()).width());
    format!("{left}{}{right}", " ".repeat(gap))
}

fn draw_charts(frame: &mut Frame, shown: &Shown, area: Rect, lines: u16) {
    let last = shown.history.back().copied().flatten();
    let rate = |value: f64| (columns::megabytes(value), "MB/s");
    let duration = |value: f64| (show::nanos(value as u64), "");
    let count = |value: f64| (columns::count(value), "ops/s");
    type Part = fn(&Point) -> f64;
    type Shape<'a> = &'a dyn Fn(f64) -> (String, &'static str);
    let series: [(&str, Part, Shape, Color); 5] = [
        ("read", |point| point.read_bytes, &rate, Color::Green),
        ("write", |point| point.written_bytes, &rate, Color::Yellow),
        ("ops", |point| point.operations, &count, Color::Cyan),
        ("mean", |point| point.mean_ns as f64, &duration, Color::Magenta),
        ("p99", |point| point.p99_ns as f64, &duration, Color::Magenta),
    ];
    let rows = Layout::vertical([Constraint::Length(lines); 5]).split(area);
    for ((name, part, shape, color), area) in series.into_iter().zip(rows.iter()) {
        let [label, chart] =
            Layout::horizontal([Constraint::Length(LABEL_WIDTH), Constraint::Min(0)]).areas(*area);
        // Only what fits is compared, so that the highest bar is the largest value that is shown.
        let points = || shown.history.iter().rev().take(usize::from(chart.width));
        let largest = points().flatten().map(part).fold(0.0, f64::max);
        let (now, unit) = last.as_ref().map_or_else(|| ("-".into(), ""), |last| shape(part(last)));
        let most = if largest > 0.0 { format!("max {}", shape(largest).0) } else { String::new() };
        let text = format!(" {name:5} {:>14}  {most}", format!("{now} {unit}"));
        frame.render_widget(Paragraph::new(text), label);
        let data = points().map(|point| point.as_ref().map(|point| (part(point) * 1e3) as u64));
        let chart_of = Sparkline::default()
            .data(data)
            .direction(RenderDirection::RightToLeft)
            .absent_value_symbol("·")
            .style(Style::new().fg(color));
        frame.render_widget(chart_of, chart);
    }
}

fn draw_tables(frame: &mut Frame, state: &State, area: Rect) {
    let shown = state.shown();
    let (mounts, bricks) =
        (sorted(&shown.sample.mounts, state.sort), sorted(&shown.sample.bricks, state.sort));
    let files = sorted_files(&shown.files, state.sort, state.directories);
    let heads = if state.has_files() { 3 } else { 2 };
    let wanted = [mounts.len(), bricks.len(), files.len()].map(|rows| rows.max(1));
    let lines = usize::from(area.height.saturating_sub(heads));
    let [mount_rows, brick_rows, _] = share(wanted, lines, state.has_files());
    // An empty line before each table, if there are lines to spare.
    let gap = u16::from(wanted.iter().sum::<usize>() + 3 <= lines);
    let [_, mount_area, _, brick_area, _, file_area] = Layout::vertical([
        Constraint::Length(gap),
        Constraint::Length(mount_rows + 1),
        Constraint::Length(gap),
        Constraint::Length(brick_rows + 1),
        Constraint::Length(gap),
        Constraint::Min(0),
    ])
    .areas(area);
    draw_rows(frame, "mount", &mounts, state.sort, mount_area);
    draw_rows(frame, "brick", &bricks, state.sort, brick_area);
    if state.has_files() {
        draw_files(frame, &files, state, file_area);
    }
}

/// Shares lines out, one at a time, among tables that want so many.
fn share(wanted: [usize; 3], lines: usize, with_last: bool) -> [u16; 3] {
    let (mut given, mut left) = ([0u16; 3], lines);
    let tables = if with_last { 3 } else { 2 };
    while left > 0 {
        let before = left;
        for (given, wanted) in given.iter_mut().zip(wanted).take(tables) {
            if left > 0 && usize::from(*given) < wanted {
                *given += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    given
}

/// `mount`, or `mount (5 of 12)` if not all fit.
fn counted(title: &str, rows: usize, area: Rect) -> String {
    let fit = usize::from(area.height.saturating_sub(1));
    match rows {
        rows if rows > fit => format!("{title} ({fit} of {rows})"),
        _ => title.to_owned(),
    }
}

fn head(columns: &[Column], sort: Sort) -> impl Iterator<Item = Cell<'static>> {
    let titles = columns.iter().map(move |column| {
        let marked =
            if column.sort == Some(sort) { format!("{}▼", column.title) } else { column.title.into() };
        right(&marked, column.width)
    });
    titles.collect::<Vec<_>>().into_iter()
}

fn right(text: &str, width: u16) -> Cell<'static> {
    Cell::from(format!("{text:>width$}", width = usize::from(width)))
}

fn draw_rows(frame: &mut Frame, title: &str, rows: &[&Line], sort: Sort, area: Rect) {
    let figures: u16 = columns::ROW.iter().map(|column| column.width + 1).sum();
    let name_width = usize::from(area.width.saturating_sub(figures + 1));
    let titles = [Cell::from(format!(" {}", counted(title, rows.len(), area)))];
    let head = Row::new(titles.into_iter().chain(head(&columns::ROW, sort))).style(bold());
    let body = rows.iter().map(|line| {
        let cells = columns::row(line);
        let figures = cells.iter().zip(&columns::ROW).map(|(cell, column)| right(cell, column.width));
        let style = if line.trouble.is_some() { Style::new().fg(Color::Red) } else { Style::new() };
        Row::new([Cell::from(format!(" {}", fit(&line.name, name_width)))].into_iter().chain(figures))
            .style(style)
    });
    let none = Row::new([format!(" (no {title})")]);
    let body: Vec<Row> = if rows.is_empty() { vec![none] } else { body.collect() };
    let widths = [Constraint::Min(0)]
        .into_iter()
        .chain(columns::ROW.iter().map(|column| Constraint::Length(column.width)));
    frame.render_widget(Table::new(body, widths).header(head), area);
}

fn draw_files(frame: &mut Frame, files: &[super::files::FileRow], state: &State, area: Rect) {
    let mount_width = if area.width >= WIDE { 40 } else { 22 };
    let figures: u16 = columns::FILE.iter().map(|column| column.width + 1).sum();
    let path_width = usize::from(area.width.saturating_sub(figures + mount_width + 2));
    let title = if state.directories { "directory" } else { "file" };
    // Latencies of files are not known.
    let sort = if state.sort == Sort::Latency { Sort::Operations } else { state.sort };
    let first = Cell::from(format!(" {}", counted(title, files.len(), area)));
    let head = Row::new([first].into_iter().chain(head(&columns::FILE, sort)).chain([Cell::from("mount")]))
        .style(bold());
    let body = files.iter().take(usize::from(area.height)).map(|file| {
        let cells = columns::file(file);
        let figures = cells.iter().zip(&columns::FILE).map(|(cell, column)| right(cell, column.width));
        let path = Cell::from(format!(" {}", fit(&file.path, path_width)));
        let mount = Cell::from(fit(&columns::users(file), usize::from(mount_width)));
        Row::new([path].into_iter().chain(figures).chain([mount]))
    });
    let none = Row::new([format!(" (no {title} was read or written)")]);
    let body: Vec<Row> = if files.is_empty() { vec![none] } else { body.collect() };
    let widths = [Constraint::Min(0)]
        .into_iter()
        .chain(columns::FILE.iter().map(|column| Constraint::Length(column.width)))
        .chain([Constraint::Length(mount_width)]);
    frame.render_widget(Table::new(body, widths).header(head), area);
}

fn draw_help(frame: &mut Frame, shown: &Shown, area: Rect) {
    let mut lines: Vec<String> = HELP.iter().map(|line| format!(" {line}")).collect();
    if !shown.volumes.is_empty() {
        let volumes = shown.volumes.iter().take(9).enumerate();
        let names: Vec<String> = volumes.map(|(at, name)| format!("{} {name}", at + 1)).collect();
        lines.push(format!(" Volumes: {}", names.join("  ")));
    }
    let width = 60.min(area.width);
    let height = (lines.len() as u16 + 2).min(area.height);
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines.join("\n")).block(Block::bordered().title(" Keys ")), place);
}

/// A text in so many columns; the middle is left out if it is longer, since both ends tell things apart.
fn fit(text: &str, width: usize) -> String {
    let wide = |text: &str| Span::raw(text.to_owned()).width();
    if wide(text) <= width {
        return text.to_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    let (mut head, mut tail) = (String::new(), String::new());
    let mut taken = 0;
    // A third for the beginning, the rest for the end.
    let room = width.saturating_sub(1);
    for c in &chars {
        let columns = wide(&c.to_string());
        if taken + columns > room / 3 {
            break;
        }
        taken += columns;
        head.push(*c);
    }
    for c in chars.iter().rev() {
        let columns = wide(&c.to_string());
        if taken + columns > room {
            break;
        }
        taken += columns;
        tail.insert(0, *c);
    }
    if width == 0 { String::new() } else { format!("{head}…{tail}") }
}
