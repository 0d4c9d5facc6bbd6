//! `[egress]`: where the server may connect to.

use super::Config;
use super::setting::{Kind, Section, Setting, Value};
use mainstay::work::egress::Egress;

/// The section.
pub static SECTION: Section = Section {
    name: "egress",
    doc: "Where the server may connect to when it calls functions. Public addresses are always reached, private ones \
          only when they are named here: without that, a function could be pointed at a cloud's metadata, a database or \
          the server itself.",
    settings: &[&ALLOW],
};

/// Which private addresses may be reached.
pub static ALLOW: Setting = Setting {
    section: "egress",
    key: "allow",
    kind: Kind::Ranges,
    default: Value::List(Vec::new()),
    flag: None,
    doc: "Ranges of private addresses that may be reached, such as `127.0.0.0/8` or `10.20.0.0/16`; as a variable they \
          are parted by commas.",
};

/// The rules that the configuration asks for.
pub fn rules(config: &Config) -> Egress {
    Egress::new(config.list(&ALLOW)).expect("ranges are checked")
}
