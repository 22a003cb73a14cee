-- The tables of an application before it has a queue: 97 companies and a thousand payments.
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 96)
INSERT INTO companies (id) SELECT 3301 + n FROM numbers;

WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
INSERT INTO payments (id, company_id, amount_cents) SELECT n, 3301 + n % 97, 100 * n FROM numbers;
