use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { companies (id) { id -> BigInt, name -> Text, } }
diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, amount_cents -> BigInt, } }
diesel::joinable!(payments -> companies (company_id));
diesel::allow_tables_to_appear_in_same_query!(companies, payments);

#[derive(Queryable, Selectable)]
#[diesel(table_name = companies)]
struct Company {
    id: i64,
    name: String,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = payments)]
struct Amount {
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    #[diesel(embed)]
    amount: Amount,
    #[diesel(embed)]
    company: Company,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = payments::table.filter(payment_queue::try_count.gt(1)).select(Payment::queue_state());
}
