select who, max(amount) as amount from {{ source('public', 'dbt_orders') }} group by who
