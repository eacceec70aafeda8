select id, who, amount from {{ source('public', 'dbt_orders') }} where amount >= 10
