-- New users who opened an auction in the window in which they came.
SELECT p.id, p.name, p.starttime
FROM (
  SELECT id, name, w.start AS starttime, w.end AS endtime
  FROM (SELECT id, name, window(dateTime, '10 seconds') AS w FROM person)
  GROUP BY id, name, w) AS p
JOIN (
  SELECT seller, w.start AS starttime, w.end AS endtime
  FROM (SELECT seller, window(dateTime, '10 seconds') AS w FROM auction)
  GROUP BY seller, w) AS a
  ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime
