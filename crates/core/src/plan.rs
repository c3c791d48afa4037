//! The plan of a call: the paper's ablation switches as run-time choices.

/// How a row is truncated to candidates before the search (paper, σ-truncation).
///
/// A truncation is a hint: it may cost time, never correctness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Truncation {
    /// None: the search runs on the whole row.
    Off,
    /// The paper's: `t = μ + δσ − 0.2·|t|`, with mean and deviation of a sample and δ from the normal's tables.
    Paper,
    /// The same with the margin in units of σ, which a shift of the logits does not change.
    Gaussian,
    /// An order statistic of a sample spread over the row.
    Quantile,
    /// Whatever the backend does best: a threshold that rises while the row streams by, where it can.
    #[default]
    Adaptive,
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
/// ```
/// use qrita_core::{Plan, Search, Truncation};
/// assert_eq!(Plan::default().truncation, Truncation::Adaptive);
/// assert_eq!(Plan::paper(), Plan { truncation: Truncation::Paper, search: Search::Quaternary, ..Plan::default() });
/// assert_eq!(Plan::all().count(), 5 * 2 * 4 * 2 * 2);
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
    /// under [`Ties::KeepAll`](crate::Ties::KeepAll).
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
            duplicates: true,
            autotune: true,
        }
    }
}

impl Plan {
    /// The algorithm as the paper has it (its Table 4, run A).
    pub fn paper() -> Plan {
        Plan { truncation: Truncation::Paper, search: Search::Quaternary, ..Plan::default() }
    }

    /// Every plan there is.
    pub fn all() -> impl Iterator<Item = Plan> {
        let truncations =
            [Truncation::Off, Truncation::Paper, Truncation::Gaussian, Truncation::Quantile, Truncation::Adaptive];
        let searches = [Search::Quaternary, Search::Binary, Search::Sort, Search::Select];
        let switches = (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0));
        truncations.into_iter().flat_map(move |truncation| {
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
        })
    }
}
