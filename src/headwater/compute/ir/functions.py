"""Functions whose answer depends on the order in which rows come.

Spark calls them deterministic. SQL leaves that order open and we do not (DESIGN, law 2): where one
of these stands, rows come in the canonical order of the whole row of the operator's input. So the
lists say what must be given an order when a plan is run, and what cannot be kept at all.

    ORDERED     aggregates: their answer is fixed by ordering the rows of the group
    POSITIONAL  window functions: their answer is fixed by ordering the ties of the window's order
    FLOATING    aggregates whose arithmetic rounds: exact where their arguments are exact
    UNSTABLE    sketches: no order of the rows makes their answer a function of the multiset

Kept by: this module alone; ``tests/unit/compute_ir/test_functions.py`` says why each is there.
Relied on by: the front end (refusals), rendering, and the delta rules.
"""

from __future__ import annotations

from typing import Final

ORDERED: Final = frozenset(
    {
        "any_value",
        "array_agg",
        "collect_list",
        "collect_set",
        "collect_union",
        "first",
        "first_value",
        "last",
        "last_value",
        "listagg",
        "max_by",
        "min_by",
        "mode",
        "string_agg",
    }
)

POSITIONAL: Final = frozenset(
    {
        "counter_diff",
        "first",
        "first_value",
        "lag",
        "last",
        "last_value",
        "lead",
        "nth_value",
        "ntile",
        "row_number",
    }
)

RANKING: Final = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Window functions that give ties the same answer: their order must not be made finer."""

FLOATING: Final = frozenset(
    {
        "avg",
        "corr",
        "covar_pop",
        "covar_samp",
        "kurtosis",
        "mean",
        "regr_avgx",
        "regr_avgy",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "skewness",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "sum",
        "try_avg",
        "try_sum",
        "var_pop",
        "var_samp",
        "variance",
        "vector_avg",
        "vector_sum",
    }
)

SKETCH: Final = "it is a sketch whose answer depends on the order of the rows"

_DISTINCT: Final = "use approx_count_distinct() or count(DISTINCT …)"
_PERCENTILE: Final = "use percentile()"
_TOP: Final = "count(*) by the value, and take the first by ORDER BY … LIMIT"
_BY_KEY: Final = "aggregate by the key, and then the groups"

UNSTABLE: Final[dict[str, str]] = {
    "histogram_numeric": "count(*) by width_bucket()",
    **dict.fromkeys(
        (
            "approx_percentile",
            "kll_merge_agg_bigint",
            "kll_merge_agg_double",
            "kll_merge_agg_float",
            "kll_sketch_agg_bigint",
            "kll_sketch_agg_double",
            "kll_sketch_agg_float",
            "percentile_approx",
        ),
        _PERCENTILE,
    ),
    **dict.fromkeys(("approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine"), _TOP),
    **dict.fromkeys(
        (
            "hll_sketch_agg",
            "hll_union_agg",
            "theta_intersection_agg",
            "theta_sketch_agg",
            "theta_union_agg",
        ),
        _DISTINCT,
    ),
    **dict.fromkeys(
        (
            "tuple_intersection_agg_double",
            "tuple_intersection_agg_integer",
            "tuple_sketch_agg_double",
            "tuple_sketch_agg_integer",
            "tuple_union_agg_double",
            "tuple_union_agg_integer",
        ),
        _BY_KEY,
    ),
}
"""Functions that are refused because they are a :data:`SKETCH`, each with what to use instead."""
