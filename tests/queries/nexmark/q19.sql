-- The ten highest bids of an auction.
SELECT auction, bidder, price, channel, url, dateTime, extra, place
FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
WHERE place <= 10
