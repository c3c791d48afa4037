//! The plan of a call: the paper's ablation switches as run-time choices, among those that were compiled in.

use crate::error::Error;

/// Which choices of a [`Plan`] a crate was compiled with: its Cargo features of these names, all of them on by default.
///
/// The variants of [`Truncation`] and [`Search`] are there in every build, so that features that another crate turns on
/// break no `match` and no file. What a build has no code for is refused by [`Plan::validate`]. A backend has features of
/// its own, which turn core's on but not the other way round: it validates by [`features!`](crate::features) of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Features {
    /// Every [`Truncation`] but [`Truncation::Off`].
    pub truncation: bool,
    /// [`Search::Quaternary`].
    pub quaternary: bool,
    /// [`Plan::duplicates`]. **Without it outputs differ**: all values equal to a cut are kept. The other features never
    /// change an output bit.
    pub duplicates: bool,
    /// [`Plan::autotune`].
    pub autotune: bool,
}

impl Features {
    /// This crate's own: what [`Plan::default`], [`Plan::paper`] and [`Plan::all`] name.
    pub const OF_CORE: Features = crate::features!();
}

/// The [`Features`] of the crate that this is written in, which has Cargo features of the four names.
#[macro_export]
macro_rules! features {
    () => {
        $crate::Features {
            truncation: cfg!(feature = "truncation"),
            quaternary: cfg!(feature = "quaternary"),
            duplicates: cfg!(feature = "duplicates"),
            autotune: cfg!(feature = "autotune"),
        }
    };
}

/// How a row is truncated to candidates before the search (paper, σ-truncation).
///
/// A truncation is a hint: it may cost time, never correctness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Truncation {
    /// None: the search runs on the whole row. The default of a build without the feature `truncation`.
    #[cfg_attr(not(feature = "truncation"), default)]
    Off,
    /// The paper's: `t = μ + δσ − 0.2·|t|`, with mean and deviation of a sample and δ from the normal's tables.
    Paper,
    /// The same with the margin in units of σ, which a shift of the logits does not change.
    Gaussian,
    /// An order statistic of a sample spread over the row.
    Quantile,
    /// Whatever the backend does best: a threshold that rises while the row streams by, where it can.
    #[cfg_attr(feature = "truncation", default)]
    Adaptive,
}

impl Truncation {
    fn name(self) -> &'static str {
        match self {
            Truncation::Off => "off",
            Truncation::Paper => "paper",
            Truncation::Gaussian => "gaussian",
            Truncation::Quantile => "quantile",
            Truncation::Adaptive => "adaptive",
        }
    }
}

/// How the cut is found among the candidates (paper, pivot search).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Search {
    /// Three pivots a pass over the ordered keys.
    Quaternary,
    /// One pivot a pass.
    Binary,
    /// Sort everything.
    Sort,
    /// Whatever the backend does best: selection by counting or partition.
    #[default]
    Select,
}

/// The switches of a call. Switching anything but `duplicates` off never changes an output bit.
///
/// The default is the fastest plan of the build: adaptive truncation, selection, duplication handling and autotune, less
/// what [`Features`] it was compiled without.
///
/// ```
/// use qrita_core::{Features, Plan, Search};
/// let plan = Plan { search: Search::Binary, ..Plan::default() };
/// assert_eq!(plan.validate(Features::OF_CORE), Ok(()));
/// assert!(Plan::all().any(|other| other == plan));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Plan {
    /// How a row is truncated.
    pub truncation: Truncation,
    /// Treat every truncation as a miss: the paper's forced fallback.
    pub force_fallback: bool,
    /// How the cut is found.
    pub search: Search,
    /// Duplication handling: keep only as many of the values equal to the cut as belong. Off, all of them are kept, as
    /// under [`Ties::KeepAll`](crate::Ties::KeepAll); so always in a build without the feature `duplicates`.
    pub duplicates: bool,
    /// Choose launch shapes from tuned tables or models; off, one fixed shape.
    pub autotune: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            truncation: Truncation::default(),
            force_fallback: false,
            search: Search::default(),
            duplicates: Features::OF_CORE.duplicates,
            autotune: Features::OF_CORE.autotune,
        }
    }
}

impl Plan {
    /// The algorithm as the paper has it (its Table 4, run A), less what this build does not have: without the feature
    /// `quaternary` its search is binary.
    pub fn paper() -> Plan {
        let Features { truncation, quaternary, .. } = Features::OF_CORE;
        Plan {
            truncation: if truncation { Truncation::Paper } else { Truncation::Off },
            search: if quaternary { Search::Quaternary } else { Search::Binary },
            ..Plan::default()
        }
    }

    /// Refuses a plan that names a choice without code in a crate that has these features.
    ///
    /// # Errors
    /// [`Error::NotCompiled`], which names the switch, its value and the feature.
    pub fn validate(&self, features: Features) -> Result<(), Error> {
        let refuse = |switch, value, feature| Err(Error::NotCompiled { switch, value, feature });
        let Plan { truncation, force_fallback: _, search, duplicates, autotune } = *self;
        if truncation != Truncation::Off && !features.truncation {
            return refuse("truncation", truncation.name(), "truncation");
        }
        if search == Search::Quaternary && !features.quaternary {
            return refuse("search", "quaternary", "quaternary");
        }
        if duplicates && !features.duplicates {
            return refuse("duplicates", "true", "duplicates");
        }
        if autotune && !features.autotune {
            return refuse("autotune", "true", "autotune");
        }
        Ok(())
    }

    /// Every plan that is compiled in.
    pub fn all() -> impl Iterator<Item = Plan> {
        let truncations =
            [Truncation::Off, Truncation::Paper, Truncation::Gaussian, Truncation::Quantile, Truncation::Adaptive];
        let searches = [Search::Quaternary, Search::Binary, Search::Sort, Search::Select];
        let switches = (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0));
        let plans = truncations.into_iter().flat_map(move |truncation| {
            let switches = switches.clone();
            searches.into_iter().flat_map(move |search| {
                switches.clone().map(move |(force_fallback, duplicates, autotune)| Plan {
                    truncation,
                    force_fallback,
                    search,
                    duplicates,
                    autotune,
                })
            })
        });
        plans.filter(|plan| plan.validate(Features::OF_CORE).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn plans_name_only_what_is_compiled_in() {
        let (truncation, duplicates, autotune) =
            (cfg!(feature = "truncation"), cfg!(feature = "duplicates"), cfg!(feature = "autotune"));
        let default = Plan {
            truncation: if truncation { Truncation::Adaptive } else { Truncation::Off },
            force_fallback: false,
            search: Search::Select,
            duplicates,
            autotune,
        };
        assert_eq!(Plan::default(), default);
        let paper = Plan::paper();
        assert_eq!(paper.truncation, if truncation { Truncation::Paper } else { Truncation::Off });
        assert_eq!(paper.search, if cfg!(feature = "quaternary") { Search::Quaternary } else { Search::Binary });
        assert_eq!((paper.duplicates, paper.autotune, paper.force_fallback), (duplicates, autotune, false));

        let all: Vec<Plan> = Plan::all().collect();
        let choices = |compiled| if compiled { 2 } else { 1 };
        let searches = if cfg!(feature = "quaternary") { 4 } else { 3 };
        let truncations = if truncation { 5 } else { 1 };
        assert_eq!(all.len(), truncations * 2 * searches * choices(duplicates) * choices(autotune));
        assert!(all.contains(&default) && all.contains(&paper));
        assert!(all.iter().all(|plan| plan.validate(Features::OF_CORE).is_ok()));
    }

    #[test]
    fn a_refusal_names_switch_value_and_feature() {
        let every = Features { truncation: true, quaternary: true, duplicates: true, autotune: true };
        let none = Features { truncation: false, quaternary: false, duplicates: false, autotune: false };
        let bare = Plan {
            truncation: Truncation::Off,
            force_fallback: true,
            search: Search::Binary,
            duplicates: false,
            autotune: false,
        };
        assert_eq!(bare.validate(none), Ok(()));
        let refused = [
            (Plan { truncation: Truncation::Quantile, ..bare }, ("truncation", "quantile", "truncation")),
            (Plan { search: Search::Quaternary, ..bare }, ("search", "quaternary", "quaternary")),
            (Plan { duplicates: true, ..bare }, ("duplicates", "true", "duplicates")),
            (Plan { autotune: true, ..bare }, ("autotune", "true", "autotune")),
        ];
        for (plan, (switch, value, feature)) in refused {
            assert_eq!(plan.validate(every), Ok(()));
            assert_eq!(plan.validate(none), Err(Error::NotCompiled { switch, value, feature }));
        }
        assert_eq!(
            refused[1].0.validate(none).unwrap_err().to_string(),
            "the plan's search is quaternary, which is not part of this build: enable the Cargo feature `quaternary`"
        );
    }
}
