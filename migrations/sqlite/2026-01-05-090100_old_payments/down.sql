DELETE FROM payments WHERE id <= 1000;
