select who, sum(amount) as total, count(*) as orders from {{ ref('big_orders') }} group by who
