-- Average selling price by seller, over the last ten auctions that closed.
SELECT seller, avg(final) OVER (
    PARTITION BY seller ORDER BY dateTime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg_final
FROM (
  SELECT a.id, a.seller, b.price AS final, b.dateTime,
    row_number() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC, b.dateTime) AS place
  FROM auction AS a JOIN bid AS b ON a.id = b.auction
  WHERE b.dateTime BETWEEN a.dateTime AND a.expires)
WHERE place <= 1
