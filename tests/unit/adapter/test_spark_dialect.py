"""PostgreSQL's dialect in Spark's words."""

from __future__ import annotations

import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.spark import to_spark


@pytest.mark.parametrize(
    ("postgres", "spark"),
    [
        (
            'select A.K, sum(x) as "S" from public.A join headwater.public.b on a.k=b.k group by 1',
            "SELECT `a`.`k`, SUM(`x`) AS `S` FROM `a` JOIN `b` ON `a`.`k` = `b`.`k` GROUP BY 1",
        ),
        ("select x::text from t", "SELECT CAST(`x` AS STRING) FROM `t`"),
        ("with T as (select 1 as one) select ONE from t",
         "WITH `t` AS (SELECT 1 AS `one`) SELECT `one` FROM `t`"),
        ("select 1 order by a", "SELECT 1 ORDER BY `a` NULLS LAST"),
        ("select a / 2.0, a::numeric / b", "SELECT `a` / 2.0, CAST(`a` AS DECIMAL) / `b`"),
        ("a = 'x\\y' AND \"B\" IS NULL", "`a` = 'x\\\\y' AND `B` IS NULL"),
        ("SELECT * FROM (select 1\n) AS described LIMIT 0",
         "SELECT * FROM (SELECT 1) AS `described` LIMIT 0"),
    ],
)  # fmt: skip
def test_written_for_spark(postgres: str, spark: str) -> None:
    assert to_spark(postgres) == spark


@pytest.mark.parametrize("sql", ["select a / b from t", "select 7 / 2", "select * from other.t"])
def test_not_written_for_spark(sql: str) -> None:
    with pytest.raises(AdapterError) as refused:
        to_spark(sql)
    assert refused.value.sqlstate == "0A000"
