-- The tables of an application before it has a queue: 97 companies and a thousand payments.
INSERT INTO companies (id) SELECT 3301 + n FROM generate_series(0, 96) AS n;

INSERT INTO payments (id, company_id, amount_cents) SELECT n, 3301 + n % 97, 100 * n FROM generate_series(1, 1000) AS n;
SELECT setval(pg_get_serial_sequence('payments', 'id'), 1000);
