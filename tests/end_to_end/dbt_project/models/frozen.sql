select who, count(*) as n, max(amount) as most from {{ ref('big_orders') }} group by who
