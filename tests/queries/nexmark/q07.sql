-- Highest bid of each tumbling window.
SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
FROM bid AS b
JOIN (
  SELECT max(price) AS maxprice, w.end AS endtime
  FROM (SELECT price, window(dateTime, '10 seconds') AS w FROM bid)
  GROUP BY w) AS m
  ON b.price = m.maxprice AND b.dateTime >= m.endtime - INTERVAL '10' SECOND AND b.dateTime < m.endtime
