-- Hot items: the auctions with the most bids of each hopping window.
WITH counted AS (
  SELECT auction, w.start AS starttime, w.end AS endtime, num
  FROM (
    SELECT auction, window(dateTime, '10 seconds', '2 seconds') AS w, count(*) AS num
    FROM bid
    GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')))
SELECT c.auction, c.num
FROM counted AS c
JOIN (SELECT max(num) AS maxn, starttime, endtime FROM counted GROUP BY starttime, endtime) AS m
  ON c.starttime = m.starttime AND c.endtime = m.endtime AND c.num >= m.maxn
