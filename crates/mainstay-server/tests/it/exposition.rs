//! Reads what `/metrics` says, and is strict about it: the text format, version 0.0.4.

use std::collections::{BTreeMap, BTreeSet};

/// What was read.
pub(crate) struct Exposition {
    kinds: BTreeMap<String, String>,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

impl Exposition {
    /// Fails with the line that Prometheus would not take, or that its conventions speak against.
    pub(crate) fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut exposition = Self { kinds: BTreeMap::new(), samples: Vec::new() };
        let (mut family, mut help) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(told) = line.strip_prefix("# HELP ") {
                let (name, meaning) = told.split_once(' ').unwrap_or_else(|| panic!("{line}"));
                assert!(is_name(name) && meaning.ends_with('.'), "{line}");
                name.clone_into(&mut help);
            } else if let Some(told) = line.strip_prefix("# TYPE ") {
                let (name, kind) = told.split_once(' ').unwrap_or_else(|| panic!("{line}"));
                assert_eq!(name, help, "help stands before the type");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(exposition.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
                name.clone_into(&mut family);
            } else {
                let sample = sample(line);
                let kind = exposition.kinds.get(&family).map(String::as_str);
                let rest =
                    sample.name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} among {family}"));
                match kind {
                    Some("histogram") => assert!(["_bucket", "_sum", "_count"].contains(&rest), "{line}"),
                    _ => assert_eq!(rest, "", "{line} among {family}"),
                }
                exposition.samples.push(sample);
            }
        }
        exposition.check();
        exposition
    }

    /// No sample comes twice, and the buckets of a histogram grow up to its count.
    fn check(&self) {
        let mut seen = BTreeSet::new();
        let mut last: Option<&Sample> = None;
        for sample in &self.samples {
            assert!(seen.insert(format!("{}{:?}", sample.name, sample.labels)), "twice: {sample:?}");
            if let Some(before) = last.filter(|before| before.name == sample.name) {
                let is_bucket = sample.name.ends_with("_bucket");
                let is_first = before.labels.last().is_some_and(|(_, le)| le == "+Inf");
                assert!(!is_bucket || is_first || before.value <= sample.value, "{before:?} {sample:?}");
            }
            if let (Some(name), Some(inf)) = (sample.name.strip_suffix("_count"), last) {
                let is_histogram = self.kinds.get(name).is_some_and(|kind| kind == "histogram");
                let labels = inf.labels.iter().filter(|(name, _)| name != "le");
                assert!(!is_histogram || labels.eq(sample.labels.iter()), "{inf:?} {sample:?}");
            }
            last = Some(sample);
        }
    }

    /// Every name that a query can ask for.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let parts = |(name, kind): (&String, &String)| match kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}")).to_vec(),
            _ => vec![name.clone()],
        };
        self.kinds.iter().flat_map(parts).collect()
    }

    /// The value of a sample with these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let is_it = |sample: &&Sample| {
            sample.name == name
                && sample.labels.len() == labels.len()
                && labels
                    .iter()
                    .all(|(name, value)| sample.labels.iter().any(|(found, of)| found == name && of == value))
        };
        self.samples.iter().find(is_it).map(|sample| sample.value)
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    name.starts_with("mainstay_") && name.chars().all(is_letter)
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest, line),
        None => (Vec::new(), rest),
    };
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    Sample { name: name.to_owned(), labels, value: value.parse().unwrap_or_else(|_| panic!("{line}")) }
}

fn labels<'a>(mut rest: &'a str, line: &str) -> (Vec<(String, String)>, &'a str) {
    let mut labels = Vec::new();
    loop {
        let (name, quoted) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        assert!(name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'), "{line}");
        let (mut value, mut letters) = (String::new(), quoted.char_indices());
        rest = loop {
            match letters.next().unwrap_or_else(|| panic!("{line}")) {
                (at, '"') => break &quoted[at + 1..],
                (_, '\\') => value.push(match letters.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, escaped @ ('\\' | '"'))) => escaped,
                    _ => panic!("{line}"),
                }),
                (_, letter) => value.push(letter),
            }
        };
        labels.push((name.to_owned(), value));
        if let Some(after) = rest.strip_prefix('}') {
            return (labels, after);
        }
        rest = rest.strip_prefix(',').unwrap_or_else(|| panic!("{line}"));
    }
}
