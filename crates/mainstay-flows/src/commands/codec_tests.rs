use super::*;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::LazyLock;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Shape {
    Opened,
    Named(String),
    Moved(i64, i64),
    Painted {
        colour: Option<String>,
        layers: Vec<u8>,
    },
    #[serde(rename = "shape.closed")]
    Closed {
        by: Box<Shape>,
    },
}

impl DomainEvent for Shape {
    fn tags(&self) -> Vec<String> {
        vec!["shape:1".to_owned()]
    }

    fn upcasters() -> &'static Upcasters {
        static UPCASTERS: LazyLock<Upcasters> = LazyLock::new(|| {
            Upcasters::new()
                .on("Painted", 1, |colour: String| json!({"colour": colour}))
                .on("Painted", 2, |mut data: Value| {
                    data["layers"] = json!([1]);
                    data
                })
                .on("Moved", 2, |data: Value| data)
        });
        &UPCASTERS
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let flat = prop_oneof![
        Just(Shape::Opened),
        any::<String>().prop_map(Shape::Named),
        any::<(i64, i64)>().prop_map(|(x, y)| Shape::Moved(x, y)),
        (any::<Option<String>>(), any::<Vec<u8>>())
            .prop_map(|(colour, layers)| Shape::Painted { colour, layers }),
    ];
    flat.prop_recursive(3, 3, 1, |inner| inner.prop_map(|by| Shape::Closed { by: Box::new(by) }))
}

fn read(event_type: &str, version: u32, data: &str) -> std::result::Result<Shape, Unreadable> {
    decode_data(event_type, version, data)
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(shape in shapes()) {
        let new = encode(&shape).unwrap();
        prop_assert_eq!(read(&new.event_type, new.schema_version, new.data.get()), Ok(shape));
    }

    #[test]
    fn no_data_make_it_panic(name in "Opened|Named|Moved|Painted|shape.closed|Other", version in 0_u32..5, data in ".{0,20}") {
        let _ = read(&name, version, &data);
    }
}

#[test]
fn a_variant_is_a_type_and_its_data() {
    let new = encode(&Shape::Painted { colour: None, layers: vec![2] }).unwrap();
    assert_eq!(new.event_type, "Painted");
    assert_eq!(new.data.get(), r#"{"colour":null,"layers":[2]}"#);
    assert_eq!((new.tags, new.schema_version), (vec!["shape:1".to_owned()], 3));
    let renamed = encode(&Shape::Closed { by: Box::new(Shape::Opened) }).unwrap();
    assert_eq!((renamed.event_type.as_str(), renamed.data.get()), ("shape.closed", r#"{"by":"Opened"}"#));
    assert_eq!(encode(&Shape::Opened).unwrap().data.get(), "null");
}

#[test]
fn the_types_of_an_enum_are_known_without_a_list() {
    assert_eq!(types::<Shape>().unwrap(), ["Opened", "Named", "Moved", "Painted", "shape.closed"]);
}

#[test]
fn data_of_every_version_become_todays() {
    let painted = Shape::Painted { colour: Some("red".to_owned()), layers: vec![1] };
    assert_eq!(read("Painted", 1, r#""red""#), Ok(painted.clone()));
    assert_eq!(read("Painted", 2, r#"{"colour":"red"}"#), Ok(painted.clone()));
    assert_eq!(read("Painted", 3, r#"{"colour":"red","layers":[1]}"#), Ok(painted));
    assert_eq!(read("Opened", 1, "{\"anything\": 1}"), Ok(Shape::Opened), "that it happened is enough");
}

#[test]
fn what_cannot_be_read_says_why() {
    let code = |read: std::result::Result<Shape, Unreadable>| read.unwrap_err().entry().code;
    assert_eq!(code(read("Other", 1, "{}")), "UNKNOWN_EVENT_TYPE");
    assert_eq!(code(read("Named", 1, "7")), "INVALID_EVENT");
    assert_eq!(code(read("Named", 1, "\"a\" \"b\"")), "INVALID_EVENT");
    assert_eq!(code(read("Painted", 1, "7")), "INVALID_EVENT", "the upcaster takes a string");
    assert_eq!(code(read("Painted", 4, "{}")), "FUTURE_VERSION");
    assert_eq!(code(read("Named", 2, "\"a\"")), "FUTURE_VERSION", "a type without upcasters is at version 1");
    assert_eq!(
        read("Moved", 1, "[1,2]"),
        Err(Unreadable::MissingMigration { version: 1, missing: 1 }),
        "a step from 2 does not help what is at 1"
    );
    // An unknown variant further inside is not an unknown type of event.
    assert_eq!(code(read("shape.closed", 1, r#"{"by":"Other"}"#)), "INVALID_EVENT");
}

#[test]
fn what_is_no_plain_enum_is_refused_with_what_to_do() {
    #[derive(Serialize, Deserialize)]
    #[serde(tag = "type")]
    enum Tagged {
        Opened { by: String },
    }
    impl DomainEvent for Tagged {
        fn tags(&self) -> Vec<String> {
            Vec::new()
        }
    }
    let error = encode(&Tagged::Opened { by: "me".to_owned() }).unwrap_err();
    assert!(error.to_string().contains("without serde's tag"), "{error}");
    assert_eq!(types::<Tagged>().unwrap_err().code(), "FLOW_INVALID");
}

#[test]
fn data_that_are_up_to_date_are_not_parsed() {
    let untouched = Shape::upcasters().apply("Named", 1, "not even JSON").unwrap();
    assert!(matches!(untouched, std::borrow::Cow::Borrowed("not even JSON")));
}

#[test]
#[should_panic(expected = "two upcasters of A from version 1")]
fn two_steps_from_one_version_are_a_mistake() {
    let _ = Upcasters::new().on("A", 1, |data: Value| data).on("A", 1, |data: Value| data);
}
