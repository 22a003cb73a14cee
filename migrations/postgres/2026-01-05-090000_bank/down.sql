DROP TABLE imports;
DROP TABLE ledger;
DROP TABLE payments;
DROP TABLE companies;
