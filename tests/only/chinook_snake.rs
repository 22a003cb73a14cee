//! Adopting the Chinook sample's `invoice`: its script for PostgreSQL has names of its own.

crate::suite::chinook::adopts! {
    #[sql_name = "invoice"] #[sql_name = "invoice_id"] #[sql_name = "customer_id"] #[sql_name = "billing_country"]
}
