//! What a parameter is: its value in Rust and in ROS, its range, its description, its file.

use std::ops::RangeInclusive;

use r2r::ParameterValue;

/// When a parameter may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Only when the node starts.
    AtStart,
    /// While it runs, too.
    AnyTime,
}

/// Which numbers a parameter may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Range {
    /// It is no number.
    None,
    /// Whole numbers.
    Integers(RangeInclusive<i64>),
    /// Numbers.
    Doubles(RangeInclusive<f64>),
}

/// The file in `config/` that has a parameter; a test holds the files to it.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum File {
    /// `config/forecloud.yaml`: what people turn.
    Basic,
    /// `config/advanced.yaml`: the rest.
    Advanced,
}

/// A parameter without its value.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// Its name.
    pub name: &'static str,
    /// Which file has it.
    #[cfg(test)]
    pub file: File,
    /// The doc comment of its field, a line a line.
    pub doc: &'static str,
    /// When it may be set.
    pub when: When,
    /// Which numbers it may be.
    pub range: Range,
}

impl Declaration {
    /// The doc comment as one paragraph.
    pub fn description(&self) -> String {
        self.doc.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// A type that parameters have.
pub trait Value: Sized {
    /// What it is called in messages.
    const CALLED: &'static str;

    /// The value of a parameter of this type; none if it is of another.
    fn from_ros(value: &ParameterValue) -> Option<Self>;

    /// The parameter's value.
    fn to_ros(&self) -> ParameterValue;

    /// All values that the type has.
    fn range() -> Range {
        Range::None
    }
}

impl Value for bool {
    const CALLED: &'static str = "true or false";

    fn from_ros(value: &ParameterValue) -> Option<Self> {
        if let ParameterValue::Bool(value) = value { Some(*value) } else { None }
    }

    fn to_ros(&self) -> ParameterValue {
        ParameterValue::Bool(*self)
    }
}

macro_rules! whole_number {
    ($Type:ty) => {
        impl Value for $Type {
            const CALLED: &'static str = "a whole number";

            fn from_ros(value: &ParameterValue) -> Option<Self> {
                if let ParameterValue::Integer(value) = value {
                    Self::try_from(*value).ok()
                } else {
                    None
                }
            }

            fn to_ros(&self) -> ParameterValue {
                ParameterValue::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
            }

            fn range() -> Range {
                Range::Integers(0..=i64::MAX)
            }
        }
    };
}
whole_number!(usize);
whole_number!(u64);

impl Value for f64 {
    const CALLED: &'static str = "a number";

    fn from_ros(value: &ParameterValue) -> Option<Self> {
        match value {
            ParameterValue::Double(value) => Some(*value),
            // A whole number is a fine value where decimals may be; the other way it is not.
            ParameterValue::Integer(value) => Some(*value as f64),
            _ => None,
        }
    }

    fn to_ros(&self) -> ParameterValue {
        ParameterValue::Double(*self)
    }

    fn range() -> Range {
        Range::Doubles(f64::MIN..=f64::MAX)
    }
}

impl Value for String {
    const CALLED: &'static str = "a string";

    fn from_ros(value: &ParameterValue) -> Option<Self> {
        if let ParameterValue::String(value) = value { Some(value.clone()) } else { None }
    }

    fn to_ros(&self) -> ParameterValue {
        ParameterValue::String(self.clone())
    }
}

impl Value for Vec<String> {
    const CALLED: &'static str = "a list of strings";

    fn from_ros(value: &ParameterValue) -> Option<Self> {
        match value {
            ParameterValue::StringArray(values) => Some(values.clone()),
            // An empty list has no type of its own.
            ParameterValue::BoolArray(values) if values.is_empty() => Some(Vec::new()),
            _ => None,
        }
    }

    fn to_ros(&self) -> ParameterValue {
        ParameterValue::StringArray(self.clone())
    }
}

impl Value for Vec<f64> {
    const CALLED: &'static str = "a list of finite numbers";

    fn from_ros(value: &ParameterValue) -> Option<Self> {
        let numbers = match value {
            ParameterValue::DoubleArray(values) => values.clone(),
            ParameterValue::IntegerArray(values) => values.iter().map(|&v| v as f64).collect(),
            // An empty list has no type of its own.
            ParameterValue::StringArray(values) if values.is_empty() => Vec::new(),
            ParameterValue::BoolArray(values) if values.is_empty() => Vec::new(),
            _ => return None,
        };
        numbers.iter().all(|number| number.is_finite()).then_some(numbers)
    }

    fn to_ros(&self) -> ParameterValue {
        ParameterValue::DoubleArray(self.clone())
    }
}

impl From<RangeInclusive<usize>> for Range {
    fn from(range: RangeInclusive<usize>) -> Self {
        let number = |n: &usize| i64::try_from(*n).unwrap_or(i64::MAX);
        Self::Integers(number(range.start())..=number(range.end()))
    }
}

impl From<RangeInclusive<f64>> for Range {
    fn from(range: RangeInclusive<f64>) -> Self {
        Self::Doubles(range)
    }
}

impl Range {
    fn contains(&self, value: &ParameterValue) -> bool {
        match (self, value) {
            (Self::Integers(range), ParameterValue::Integer(value)) => range.contains(value),
            (Self::Doubles(range), ParameterValue::Double(value)) => range.contains(value),
            (Self::Doubles(range), ParameterValue::Integer(value)) => {
                range.contains(&(*value as f64))
            }
            _ => true,
        }
    }

    /// The bounds in words, such as `1 to 100`; none where every value of the type will do.
    pub fn bounds(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Integers(range) if *range.end() == i64::MAX => {
                Some(format!("{} or more", range.start()))
            }
            Self::Integers(range) => Some(format!("{} to {}", range.start(), range.end())),
            Self::Doubles(range) if *range.end() == f64::MAX => None,
            Self::Doubles(range) => Some(format!("{} to {}", range.start(), range.end())),
        }
    }
}

/// Puts `value` into a parameter's `field`, or says what it must be.
pub fn put<V: Value>(
    field: &mut V,
    declared: &Declaration,
    value: &ParameterValue,
) -> Result<(), String> {
    let accepted = declared.range.contains(value).then(|| V::from_ros(value)).flatten();
    *field = accepted.ok_or_else(|| {
        let range = match declared.range.bounds() {
            None => String::new(),
            Some(bounds) if bounds.contains(" to ") => format!(" from {bounds}"),
            Some(bounds) => format!(", {bounds}"),
        };
        format!("`{}` must be {}{range}, but is {}", declared.name, V::CALLED, describe(value))
    })?;
    Ok(())
}

/// A value as its writer knows it: with its type.
fn describe(value: &ParameterValue) -> String {
    use ParameterValue as P;
    match value {
        P::Bool(value) => format!("the boolean {value}"),
        P::Integer(value) => format!("the whole number {value}"),
        P::Double(value) => format!("the number {value:?}"),
        // A text can be of any length.
        P::String(value) if value.len() > 100 => format!("a string of {} bytes", value.len()),
        P::String(value) => format!("the string '{}'", value.escape_debug()),
        P::NotSet => "not set".to_owned(),
        other => format!("a {}", other.type_name()),
    }
}

/// Makes a struct of parameters: for each file, `when name: Type = default, in range;`, with the doc
/// comments that become descriptions.
macro_rules! parameters {
    (
        $(#[$attribute:meta])*
        pub struct $Name:ident {
            $(
                in $File:ident {
                    $(
                        $(#[doc = $doc:literal])+
                        $when:ident $field:ident: $Type:ty = $default:expr $(, in $range:expr)?;
                    )+
                }
            )+
        }
    ) => {
        $(#[$attribute])*
        pub struct $Name {
            $($($(#[doc = $doc])+ pub $field: $Type,)+)+
        }

        impl Default for $Name {
            fn default() -> Self {
                Self { $($($field: $default,)+)+ }
            }
        }

        impl $Name {
            /// All parameters, in the order of the files.
            pub fn declarations() -> Vec<Declaration> {
                vec![$($(
                    Declaration {
                        name: stringify!($field),
                        #[cfg(test)]
                        file: declare::File::$File,
                        doc: concat!($($doc, "\n"),+),
                        when: When::$when,
                        range: [
                            $(Range::from($range),)?
                            <$Type as Value>::range(),
                        ][0].clone(),
                    },
                )+)+]
            }

            /// The value of a parameter.
            pub fn get(&self, name: &str) -> Option<ParameterValue> {
                match name {
                    $($(stringify!($field) => Some(self.$field.to_ros()),)+)+
                    _ => None,
                }
            }

            /// Puts a value in; says what is allowed if it can't be.
            fn put(&mut self, declared: &Declaration, value: &ParameterValue) -> Result<(), String> {
                match declared.name {
                    $($(stringify!($field) => put(&mut self.$field, declared, value),)+)+
                    name => Err(format!("`{name}` is unknown")),
                }
            }
        }
    };
}
pub(super) use parameters;
