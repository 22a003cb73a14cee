//! Adopting the Chinook sample's `Invoice`: MySQL and SQLite keep its mixed-case names.

crate::suite::chinook::adopts! {
    #[sql_name = "Invoice"] #[sql_name = "InvoiceId"] #[sql_name = "CustomerId"] #[sql_name = "BillingCountry"]
}
