-- Average price of the winning bids of a category.
SELECT category, avg(final) AS final
FROM (
  SELECT max(b.price) AS final, a.category
  FROM auction AS a JOIN bid AS b ON a.id = b.auction
  WHERE b.dateTime BETWEEN a.dateTime AND a.expires
  GROUP BY a.id, a.category)
GROUP BY category
