select 1
select * from x
select x.* from x
select x.*, id from x
select y.*, x.id from x, y where x.id = y.id
select x.id, y.label from x join y on x.g = y.g
select x.id, y.label from x left join y on x.g = y.g and y.amount > 0
select x.id, y.id from x right join y on x.g = y.g
select x.id, y.id from x full join y on x.id = y.id + 20
select x.id, y.id from x cross join y where x.id < 5 and y.id < 5
select id, g, label from x join y using (id, g)
select * from x join y using (id) where x.id < 9
select id, x.g as xg, y.g as yg from x left join y using (id)
select id, label from x right join y using (id)
select id from x full join y using (id)
select count(*) from x natural join y
select a.id, b.id from x a join x b on a.g = b.g and a.id < b.id
select a.id from x as a, x as b where a.id = b.id and a.i4 > b.g
select q.c from (select count(*) as c from x) q
select p from (select id, id from x) as q(p, r)
select * from (select id, id from x) q
select * from (select 1 as "A", 2 as a) q
select "Odd Name" as "Odd", "Odd Name" from x
=select id from x order by id
=select id, i4 from x order by i4, id
=select id, i4 from x order by i4 desc, id
=select id, s from x order by s nulls first, id desc
=select id, n from x order by n desc nulls last, id
=select id, i4 as q from x order by q desc, 1
=select id, f from x order by 2, 1
=select id, r from x order by r desc, id
=select id from x order by i4 + g, id
=select id, -id as i4 from x order by i4
=select id from x order by id limit 5
=select id from x order by id limit 5 offset 3
=select id from x order by id offset 30
=select id from x order by id limit all
=select id from x order by id limit null offset 2
=select id from x order by id fetch first 3 rows only
=select id, b from x order by b, id
=select id, d from x order by d desc, id
=select id, iv from x order by iv, id
select distinct g from x
select distinct g, b from x
=select distinct g from x order by g
=select distinct g, b from x order by 2 desc, 1
=select distinct on (g) g, id from x order by g, id desc
=select distinct on (g) g, id, i4 from x order by g desc, i4 nulls first, id
=select distinct on (g, b) g, b, id from x order by g, b, id limit 3
select distinct on (g) g, id from x where id % 2 = 0 order by g, id
select c from (select distinct on (g) g, id as c from x order by g, id) q
select g, count(*) from x group by g
select g, count(*) from x group by 1
select g as k, count(*) from x group by k
select g, b, count(*) from x group by g, b
select g + 1 as h, count(*) from x group by g + 1
select i4 as g, count(*) from x group by g, i4
select count(*), count(i4), count(distinct g), count(distinct s) from x
select count(*) as c from x where false
select sum(i2), sum(i4), sum(i8), sum(n), sum(m), sum(z), sum(r), sum(f), sum(iv) from x
select avg(i2), avg(i4), avg(i8), avg(n), avg(m), avg(r), avg(f) from x
select g, avg(i4), avg(n) from x group by g
select avg(z) from x
select min(i4), max(i4), min(s), max(s), min(d), max(ts), min(n), max(f), min(iv), max(tz) from x
select sum(i4), min(i4), max(s), bool_and(b), string_agg(s, ',') from x where id < 0
select bool_and(b), bool_or(b), every(i4 > 0) from x
select g, bool_or(i4 > 0) from x group by g
select sum(distinct g), count(distinct n) from x
select count(*) filter (where b), sum(i4) filter (where g = 1), avg(f) filter (where b) from x
select g, count(*) filter (where i4 > 0) as p, max(s) filter (where b) from x group by g
select count(distinct g) filter (where b) from x
select string_agg(w, ',' order by id) from x
select string_agg(w, ', ' order by w desc, id) from x
select g, string_agg(s, '' order by id desc) from x group by g
select string_agg(distinct w, '|' order by w) from x
select string_agg(w, '-' order by id) filter (where b) from x
select g, sum(i4) from x group by g having sum(i4) > 0
select g from x group by g having count(*) > 3 and g is not null
select sum(i4 * g) + 1, sum(i4) * 2 from x
select sum(n) / count(*) from x
select sum(n) * 2, sum(n) - sum(m) from x
select g, sum(i4) as total from x where b group by g
=select g, count(*) as c from x group by g order by c desc, g
=select g, sum(i4) from x group by g order by sum(i4), g
=select g, max(i4) from x group by g order by max(i4) - min(i4), g
select g, case when count(*) > 5 then 'many' else 'few' end from x group by g
select coalesce(g, -1), count(*) from x group by coalesce(g, -1)
select date_trunc('year', d), count(*) from x group by date_trunc('year', d)
select extract(year from d), count(*) from x group by extract(year from d)
select sum(c) from (select count(*) as c from x group by g) q
select g, sum(n) / sum(i4) from x group by g having sum(i4) <> 0
select id, row_number() over (order by id) from x
select id, row_number() over (partition by g order by i4, id) from x
select id, rank() over (order by g), dense_rank() over (order by g) from x
select id, rank() over (partition by b order by i4 desc) from x
select id, percent_rank() over (order by id), cume_dist() over (order by g) from x
select id, ntile(4) over (order by id) from x
select id, lag(i4) over (order by id), lead(i4) over (order by id) from x
select id, lag(i4, 2) over (order by id), lag(i4, 1, 0) over (order by id), lead(n, 1, 0) over (order by id) from x
select id, lag(s, 1, 'none') over (partition by g order by id) from x
select id, first_value(i4) over (order by id), last_value(i4) over (order by id) from x
select id, last_value(id) over (partition by g order by id rows between unbounded preceding and unbounded following) from x
select id, nth_value(s, 2) over (order by id) from x
select id, sum(i4) over (order by id), count(*) over (order by id) from x
select id, sum(i4) over (partition by g) from x
select id, sum(i4) over () from x
select id, sum(i4) over (order by g) from x
select id, sum(i4) over (order by id rows between 2 preceding and current row) from x
select id, sum(i4) over (order by id rows between 1 preceding and 1 following) from x
select id, sum(i4) over (order by id rows 2 preceding) from x
select id, max(i4) over (order by id rows between unbounded preceding and 1 preceding) from x
select id, sum(i4) over (order by g range between unbounded preceding and current row) from x
select id, sum(i4) over (order by g range 2 preceding), sum(i4) over (partition by b order by i8 desc range between 3 preceding and 2 following) from x
select id, count(*) over (order by ts range between interval '7 days' preceding and current row) from x
select id, count(*) over (order by tz desc range between '36 hours' preceding and interval '1 day' following), sum(i4) over (order by d range between interval '1 day' preceding and unbounded following) from x
select id, sum(i4) over (order by g desc, id), min(s) over (partition by b order by id) from x
select id, avg(i4) over (order by id rows between 3 preceding and current row) from x
select id, count(*) filter (where b) over (order by id) from x
select id, sum(i8) over (order by id), sum(n) over (order by id) from x
select id, sum(i4) over w, count(*) over w from x window w as (partition by g order by id)
select g, sum(count(*)) over (order by g) from x group by g
select g, rank() over (order by count(*) desc) from x group by g
select id from (select id, row_number() over (partition by g order by id) as r from x) q where r <= 2
select id from x where i4 in (select i4 from x where b)
select id from x where g not in (select g from y where g is not null)
select id from x where g not in (select g from y)
select id from x where i4 = any (select g from y)
select id from x where g <> all (select g from y where g > 2)
select id from x where exists (select 1 from y where y.g = x.g and y.amount > 0)
select id from x where not exists (select 1 from y where y.g = x.g)
select id from x where exists (select * from y where y.id = x.id)
select id, (select count(*) from y where y.g = x.g) from x
select id, (select max(amount) from y where y.g = x.g) as m from x
select (select max(id) from x)
select id from x where i4 > (select avg(i4) from x)
select id from x where n = (select max(n) from x)
select (select 1), (select 'a'), (select null)
select id, exists (select 1 from y where y.id = x.id) from x
select id from x where id in (select id from y) and g in (1, 2)
select id from x where g in (select k from y)
select id from x where i8 in (select id from y)
select x.id, q.c from x cross join lateral (select count(*) as c from y where y.g = x.g) q
select x.id, q.m from x left join lateral (select max(y.id) as m from y where y.g = x.g) q on true
with c as (select id, g from x where b) select * from c
with c as (select id, g from x where b), d as (select g, count(*) as n from c group by g) select * from d
with c(p, q) as (select id, g from x) select q, count(p) from c group by q
with x as (select id from y) select count(*) from x
with c as (select 1 as one) select c.one, d.one from c, c as d
with c as materialized (select g from x) select count(*) from c
select * from (with c as (select id from x) select * from c where id < 3) q
with c as (select g, sum(i4) as s from x group by g) select x.id, c.s from x join c on x.g = c.g
select id from x union select id from y
select g from x union all select g from y
select g from x intersect select g from y
select g from x intersect all select g from y
select g from x except select g from y
select g from x except all select g from y
select id from x where id < 3 union all select id from y where id < 2 union all select 99
select g from x union select g from y except select 1
select g from x union all select g from y intersect select 2
(select id from x where id < 3) union all (select id from y where id < 3)
select i4 from x union select n from x
select i4 from x union all select i8 from x
select i4, null from x union all select g, s from x
select 1, 'a' union all select 2, null
select null union all select 1
select null union all select null
select '2024-01-01' union all select d from x
select 1 as a union select 2.5
=select id, g from x union all select id, g from y order by 1, 2
=select id as k from x union select id from y order by k desc limit 4
=(select id from x order by id limit 3) union all (select id from y order by id desc limit 2) order by 1
select count(*) from (select id from x union all select id from y) q
select r from x union all select f from x
select d from x union select ts from x
values (1, 'a'), (2, 'b')
values (1), (2.5), (null)
values (1, null), (null, 'x')
select * from (values (1, 'a'), (2, 'b')) as v(p, q)
select v.p, x.id from (values (1), (2)) v(p) join x on x.g = v.p
select column1 + 1 from (values (1), (2)) v
select * from generate_series(1, 5)
select * from generate_series(1, 5) as g
select n from generate_series(1, 10, 3) as q(n)
select n from generate_series(5, 1) as q(n)
select n from generate_series(5, 1, -2) as q(n)
select n from generate_series(1, 3000000000, 1000000000) as q(n)
select q.n * 2, x.id from generate_series(0, 4) as q(n) left join x on x.g = q.n
select x.id, q.n from x, generate_series(1, x.g) as q(n)
select n from generate_series(timestamp '2024-01-30', '2024-02-02', interval '1 day') as q(n)
select n from generate_series(timestamp '2024-01-30', timestamp '2024-01-30 06:00', interval '90 minutes') as q(n)
select v from unnest(array[1, 2, 3]) as q(v)
select * from unnest(array['a', 'b']) as u
select x.id, v from x, unnest(x.arr) as q(v)
select x.id, v from x cross join unnest(arr) as q(v) where v > 1
select sum(v) from x, unnest(x.arr) as q(v)
select upper(s) as u from x where length(s) > 2
select id from x where b
select id from x where not b
select id from x where null
select id from x where i4 = 7 or g is null
select a.g, count(*) from x a left join y b on a.g = b.g where b.label is null group by a.g
select g, count(distinct b), sum(distinct i4) from x group by g
select id, case when g = 1 then n when g = 2 then m else 0 end from x
select max(case when b then i4 end) - min(case when not b then i4 end) from x
select g, sum(case when b then 1 else 0 end) as yes, sum(case when b then 0 else 1 end) as no from x group by g
select id + 0.5, id * 1.0, id::numeric(10,2) * 3 from x
select id, sum(n) over (order by id) - n from x
select y.day, sum(y.amount) from y group by y.day having sum(y.amount) > 0
select y.label, x.s from y inner join x on y.id = x.id where y.label like 'T%'
select 1 where 1 = 0
select 'a' as "select", 2 as "from"
select count(*) from x, y where x.g = y.g and x.id + y.id < 30
select x.id from x where x.id = (select min(z.id) from x as z where z.g = x.g)
select sum(q.total) from (select g, sum(i8) as total from x group by g) as q
select coalesce(sum(i4), 0), coalesce(max(s), 'none') from x where id > 1000
select abs(sum(i4)), round(avg(f)), length(max(s)) from x
select pg_catalog.upper(w) from x
select id, n / 4 > 1, n * 1.10 from x where n is not null
select n / 3, m / 7, z / 9, i4 / 3.0 from x
select id, i4 / 2, i4 % 2, i4 * 2 from x
select current_date >= date '2020-01-01', now() >= timestamptz '2020-01-01', current_timestamp > '2020-01-01'
select array_agg(i4 order by id) from x
select array_agg(i4 order by i4 desc, id) from x
select g, array_agg(s order by b nulls first, n desc, id) from x group by g
select array_agg(w order by id) filter (where b), array_agg(id order by id) from x where id < 9
select array_agg(i4 order by i4) from x where false
select cardinality(array_agg(id order by id)), (array_agg(id order by id))[1] from x
select avg(i4), avg(n), avg(f), sum(i8) from x where false
select id, avg(i4), avg(n) from x group by id
select id, g > all (select g from y where id < 4), g <= any (select g from y where id < 4) from x
select id, i4 = all (select g from y where g = 2), i4 <> any (select g from y where g > 1) from x
select id from x where g >= all (select z.g from y as z where z.id = x.id)
select id, g in (select g from y where id < 6), g not in (select g from y where id < 6), g = any (select g from y where id < 0) from x
with recursive r(n) as (select 1 union all select n + 1 from r where n < 200) select n from r
with recursive r as (select id, g, 1 as depth from x where id < 3 union all select x.id, x.g, r.depth + 1 from r join x on x.id = r.id + 2 where r.depth < 4) select * from r
with recursive c as (select g from y where id < 4), r as (select min(g) as low, 0 as depth from c union all select low + 1, depth + 1 from r where depth < 3) select r.*, (select count(*) from c) from r
with recursive c as (select id from x) select count(*) from c
select count(*) from (with recursive r as (select 1::bigint as n, 'a' as s union all select n * 2, s || 'b' from r where n < 100) select * from r) as q where length(s) > 2
select g, count(*), sum(id) from x group by rollup(g)
select g, b, count(*), grouping(g), grouping(g, b) from x group by cube(g, b)
select g, b, count(*) from x group by grouping sets ((g, b), g, ())
select g as k, b, sum(i4), max(s) from x where id < 12 group by b, rollup (k) having count(*) > 0
select b, id % 3, count(*) from x group by grouping sets (rollup (b), (id % 3)), grouping sets ((), (b))
select g, count(*), sum(id), avg(i4), grouping(g) from x where id < 0 group by rollup(g)
select coalesce(s, 'all') as k, b, count(*) filter (where b), max(i4) + 1 from x where id < 0 group by cube(s, b) having count(*) = 0 order by k, 2
select b, count(*) from x where id < 0 group by grouping sets ((b), (), ())
select count(*), max(s) from x where id < 0 group by ()
select g as k, rank() over (order by count(*)), sum(count(*)) over () from x where id < 0 group by rollup(1)
select distinct upper(s) from x where id < 0 group by rollup(upper(s)) limit 2
select t.g, t.n, (select count(*) from x where id < 0 group by rollup(b)) from (select g, count(*) as n from x where id < 0 group by rollup(g)) t
select count(*) from x group by ()
select g, b, count(*) from x group by (g, b)
select count(*) from x where id < 0 group by grouping sets ((), ())
select count(*), max(i4) from x group by grouping sets ((), ())
select count(*) from x where id < 0 group by (), ()
select count(*) from x where id < 0 group by grouping sets ((), ()), ()
select count(*) from x group by grouping sets ((), (), ()) having count(*) > 0
select 5 from x where id < 0 group by grouping sets ((), ())
=select id from x order by id limit '5'::integer offset cast('3' as bigint)
=select id from x order by id limit (2) offset 1 + 1
=select id from x order by id limit 2.5
=select id from x order by id offset 2 rows fetch first (1 + 1) rows only
=select id from x order by id fetch first row only
=select id from x order by id limit 99999999999 offset 0
select id from x offset 99999999999
=(select id from x order by id limit 4) offset 2
=((select id from x) order by id) limit 2
=values (1), (2), (3) limit 2
select g, avg(n / 7) * 3 as x, sum(n / 7) / 3 * 5 as y, max(n / 7) / 3 * 5 as z, avg(n / i4) filter (where i4 > 0) * 7 as w from x where i4 <> 0 group by g
