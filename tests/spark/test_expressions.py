"""Views of single functions and expressions that once were wrong, stalled or refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.controller import ViewController
from headwater.compute.maintained import MaintainedView
from headwater.persist.client import Client
from headwater.persist.errors import CollectionHasErrors
from tests.unit.compute import model

pytestmark = pytest.mark.spark

MAP = pa.map_(pa.string(), pa.int32())


def test_an_item_at_no_place_is_null(spark: Any, client: Client) -> None:
    """Spark takes such an item for never NULL, and fails where it is: in code that it generates."""
    schema = pa.schema([("k", pa.int32()), ("s", pa.string())])
    write, _ = client.create_or_load("t", schema)
    controller = ViewController(client, spark)
    item = "array(10, 20, 30)[k]"
    queries = {
        "items": f"SELECT {item} AS a, element_at(array(1, 2, 3), k + 1) AS b FROM t",
        "counted": f"SELECT count(a) AS n, sum(a + 1) AS s FROM (SELECT {item} AS a FROM t)",
        "collected": "SELECT s, collect_list(k)[max(k)] AS c FROM t GROUP BY s",
        "computed": "SELECT transform(split(s, ','), v -> coalesce(v, ''))[k] AS p FROM t",
        "over": "SELECT a, count(a) AS n FROM items GROUP BY a",
    }
    for name, sql in queries.items():
        controller.create_view(name, sql)
    rows = [({"k": 0, "s": "a"}, 0, 1), ({"k": None, "s": "b"}, 1, 1), ({"k": 0, "s": None}, 2, 1)]
    rows.append(({"k": None, "s": "b"}, 3, -1))
    write.compare_and_append(rows, 0, 4).result()
    assert set(controller.run_once()) == set(queries), controller.failures()
    first, none = (10, 1), (None, None)
    wanted: dict[str, list[dict[Any, int]]] = {
        "items": [{first: 1}, {first: 1, none: 1}, {first: 2, none: 1}, {first: 2}],
        "counted": [{(1, 11): 1}, {(1, 11): 1}, {(2, 22): 1}, {(2, 22): 1}],
        "collected": [
            {("a", 0): 1},
            {("a", 0): 1, ("b", None): 1},
            {("a", 0): 1, ("b", None): 1, (None, 0): 1},
            {("a", 0): 1, (None, 0): 1},
        ],
        "computed": [
            {("a",): 1},
            {("a",): 1, (None,): 1},
            {("a",): 1, (None,): 2},
            {("a",): 1, (None,): 1},
        ],
        "over": [
            {(10, 1): 1},
            {(10, 1): 1, (None, 0): 1},
            {(10, 2): 1, (None, 0): 1},
            {(10, 2): 1},
        ],
    }
    for name, sql in queries.items():
        for time, rows_then in enumerate(wanted[name]):
            found = model.rows_of(client.reader(name).snapshot(time).to_table())
            assert found == rows_then, f"{name} at {time}"
            assert model.rows_of(controller.select(sql, time)) == rows_then, f"{name} at {time}"


def test_grouping_sets_of_what_has_parts(spark: Any, client: Client) -> None:
    """The NULL of a column that a set leaves out has that column's type, one of parts as well."""
    pair = pa.struct([("p", pa.int32()), ("q", pa.string())])
    write, _ = client.create_or_load("t", pa.schema([("s", pair), ("xs", pa.list_(pa.int32()))]))
    controller = ViewController(client, spark)
    rolled = controller.create_view("rolled", "SELECT s, count(*) AS n FROM t GROUP BY ROLLUP (s)")
    assert isinstance(rolled, MaintainedView), controller.explain("rolled")
    sql = "SELECT s, xs, count(*) AS n FROM t GROUP BY GROUPING SETS ((s), (xs))"
    controller.create_view("sets", sql)
    one, none = {"s": {"p": 1, "q": None}, "xs": [1, None]}, {"s": None, "xs": None}
    write.compare_and_append([(one, 0, 2), (none, 1, 1), (one, 2, -2)], 0, 3).result()
    assert controller.run_once() == ("rolled", "sets"), controller.failures()
    shown, listed = str(one["s"]), str(one["xs"])
    wanted: dict[str, list[dict[Any, int]]] = {
        "rolled": [
            {(shown, 2): 1, ("None", 2): 1},
            {(shown, 2): 1, ("None", 3): 1, ("None", 1): 1},
            {("None", 1): 2},
        ],
        "sets": [
            {(shown, "None", 2): 1, ("None", listed, 2): 1},
            {(shown, "None", 2): 1, ("None", listed, 2): 1, ("None", "None", 1): 2},
            {("None", "None", 1): 2},
        ],
    }
    for name, at_times in wanted.items():
        for time, expected in enumerate(at_times):
            found: Counter[Any] = Counter()
            for row in client.reader(name).snapshot(time).to_table().to_pylist():
                *parts, n, diff = row.values()
                found[*map(str, parts), n] += diff
            assert found == expected, f"{name} at {time}"


def test_what_an_outer_generator_makes_of_nothing_is_null(spark: Any, client: Client) -> None:
    """Places and keys of maps, too, which are never NULL where there is something."""
    schema = pa.schema([("k", pa.int32()), ("xs", pa.list_(pa.int32())), ("m", MAP)])
    write, _ = client.create_or_load("t", schema)
    controller = ViewController(client, spark)
    queries = {
        "places": "SELECT k, posexplode_outer(xs) AS (p, x) FROM t",
        "keys": "SELECT k, name, v FROM t LATERAL VIEW OUTER explode(m) e AS name, v",
        "counted": "SELECT count(p) AS n, count(*) AS r, max(name) AS m FROM t LATERAL VIEW OUTER "
        "posexplode(xs) e AS p, x LATERAL VIEW OUTER explode(m) f AS name, v",
    }
    for name, sql in queries.items():
        controller.create_view(name, sql)
    rows = [
        ({"k": 1, "xs": [7], "m": [("a", None)]}, 0, 1),
        ({"k": 2, "xs": [], "m": []}, 1, 1),
        ({"k": 3, "xs": None, "m": None}, 1, 1),
        ({"k": 2, "xs": [], "m": []}, 2, -1),
    ]
    write.compare_and_append(rows, 0, 3).result()
    assert set(controller.run_once()) == set(queries), controller.failures()
    place, key = (1, 0, 7), (1, "a", None)
    empty: list[dict[Any, int]] = [{}, {(2, None, None): 1, (3, None, None): 1}]
    for time, nothing in enumerate([*empty, {(3, None, None): 1}]):
        wanted: dict[str, dict[Any, int]] = {
            "places": {place: 1, **nothing},
            "keys": {key: 1, **nothing},
            "counted": {(1, 1 + len(nothing), "a"): 1},
        }
        for name, expected in wanted.items():
            found = model.rows_of(client.reader(name).snapshot(time).to_table())
            assert found == expected, f"{name} at {time}"


def test_long_conditions_are_no_deeper_than_a_stage_can_read(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", pa.schema([("k", pa.int64())]))
    controller = ViewController(client, spark)
    queries = {
        "listed": f"SELECT k FROM t WHERE k IN ({', '.join(map(str, range(1_000)))})",
        "either": f"SELECT k FROM t WHERE {' OR '.join(f'k = {n}' for n in range(300))}",
        "summed": f"SELECT {' + '.join(['k'] * 300)} AS k FROM t",
    }
    for name, sql in queries.items():
        controller.create_view(name, sql)
    rows = [({"k": 7}, 0, 1), ({"k": -7}, 0, 1), ({"k": None}, 0, 1), ({"k": 7}, 1, -1)]
    write.compare_and_append(rows, 0, 2).result()
    assert set(controller.run_once()) == set(queries), controller.failures()
    sums = [{(2_100,): 1, (-2_100,): 1, (None,): 1}, {(-2_100,): 1, (None,): 1}]
    for name in queries:
        for time, chosen in enumerate(({(7,): 1}, {})):
            found = model.rows_of(client.reader(name).snapshot(time).to_table())
            assert found == (sums[time] if name == "summed" else chosen), f"{name} at {time}"


def test_a_left_join_lateral_is_outer_without_a_condition(spark: Any, client: Client) -> None:
    """Spark by itself forgets it where the other side generates rows."""
    schema = pa.schema([("k", pa.int32()), ("xs", pa.list_(pa.int32()))])
    write, _ = client.create_or_load("t", schema)
    controller = ViewController(client, spark)
    lateral = "LATERAL explode(xs) AS e(x)"
    queries = {
        "bare": f"SELECT k, x FROM t LEFT JOIN {lateral}",
        "always": f"SELECT k, x FROM t LEFT JOIN {lateral} ON true",
        "selected": "SELECT k, x FROM t LEFT JOIN LATERAL (SELECT explode(xs) AS x)",
    }
    inner = f"SELECT k, x FROM t INNER JOIN {lateral}"
    for name, sql in {**queries, "inner": inner}.items():
        controller.create_view(name, sql)
    rows = [({"k": 1, "xs": [7]}, 0, 1), ({"k": 2, "xs": []}, 1, 1), ({"k": 3, "xs": None}, 2, 1)]
    write.compare_and_append([*rows, (rows[1][0], 2, -1)], 0, 3).result()
    assert len(controller.run_once()) == 4, controller.failures()
    one = {(1, 7): 1}
    for time, wanted in enumerate((one, {**one, (2, None): 1}, {**one, (3, None): 1})):
        for name, sql in queries.items():
            found = model.rows_of(client.reader(name).snapshot(time).to_table())
            assert found == wanted, f"{name} at {time}"
            assert model.rows_of(controller.select(sql, time)) == wanted, f"{name} at {time}"
        assert model.rows_of(client.reader("inner").snapshot(time).to_table()) == one


def test_functions_that_spark_prints_in_a_way_of_its_own(spark: Any, client: Client) -> None:
    """What reads back alone must read back inside of a passage, too."""
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("v", pa.list_(pa.float32()))])
    write, _ = client.create_or_load("t", schema)
    controller = ViewController(client, spark)
    queries = {
        "shifted": "SELECT x >> 1 AS a, x >>> 1 AS b FROM t WHERE x >> 1 > 0",
        "zipped": "SELECT to_json(arrays_zip(array(k), array(x))) AS z FROM t",
        "zip": "SELECT arrays_zip(array(k), array(x)) AS z FROM t",
        "named": "SELECT named_struct('größe', x, '1', k) AS n FROM t",
        "cast": "SELECT cast(array(x) AS array<string>) AS c FROM t",
        "two": "SELECT max_by(x, k, 2) AS m FROM t",
        "two_each": "SELECT k, min_by(x, x, 2) AS m FROM t GROUP BY k",
        "greatest": "SELECT mode() WITHIN GROUP (ORDER BY x DESC) AS m FROM t",
        "united": "SELECT collect_union(array(x, k)) AS u FROM t",
        "vector": "SELECT vector_sum(v) AS s FROM t",
        "counted": "SELECT x, counter_diff(x) OVER (ORDER BY k) AS d FROM t",
    }
    for name, sql in queries.items():
        controller.create_view(name, sql)
    one, two = {"k": 1, "x": 7, "v": [1e8, 1.0]}, {"k": 2, "x": 4, "v": [4.0, 1.0]}
    three = {"k": 3, "x": -1, "v": [-1e8]}
    rows = [(one, 0, 1), (two, 1, 2), (three, 2, 1), (three, 3, -1)]
    write.compare_and_append(rows, 0, 4).result()
    assert set(controller.run_once()) == set(queries), controller.failures()
    wanted: dict[str, list[list[Any]]] = {
        "shifted": [[(3, 3)], [(2, 2), (2, 2), (3, 3)]],
        "zipped": [
            [('[{"0":1,"1":7}]',)],
            [('[{"0":1,"1":7}]',), *[('[{"0":2,"1":4}]',)] * 2],
        ],
        "zip": [[([{"0": 1, "1": 7}],)], [([{"0": 1, "1": 7}],), *[([{"0": 2, "1": 4}],)] * 2]],
        "named": [
            [({"größe": 7, "1": 1},)],
            [*[({"größe": 4, "1": 2},)] * 2, ({"größe": 7, "1": 1},)],
        ],
        "cast": [[(["7"],)], [(["4"],), (["4"],), (["7"],)]],
        "two": [[([7],)], [([4, 4],)]],
        "two_each": [[(1, [7])], [(1, [7]), (2, [4, 4])]],
        "greatest": [[(7,)], [(4,)]],
        "united": [[([1, 7],)], [([1, 2, 4, 7],)]],
        "vector": [[([1e8, 1.0],)], [([1e8 + 8, 3.0],)]],
        "counted": [[(7, None)], [(4, 0), (4, None), (7, None)]],
    }
    for name, (first, second) in wanted.items():
        for time, expected in ((0, first), (1, second), (3, second)):
            found = [
                tuple(row.values())
                for row in client.reader(name).snapshot(time).to_table().to_pylist()
                for _ in range(row.pop("__diff"))
            ]
            assert sorted(map(str, found)) == sorted(map(str, expected)), f"{name} at {time}"
    for name, message in (("vector", "dimension"), ("counted", "negative counter")):
        with pytest.raises(CollectionHasErrors, match=message):
            client.reader(name).snapshot(2).to_table()
