-- Log to files: what they would hold, by day and minute.
SELECT auction, bidder, price, dateTime, extra, date_format(dateTime, 'yyyy-MM-dd') AS day,
  date_format(dateTime, 'HH:mm') AS minute
FROM bid
