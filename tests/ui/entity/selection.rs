//! What an entity selects from another table.

mod selection_of_another_table {
    use diesel::prelude::*;
    use queueable::Queueable;

    diesel::table! { companies (id) { id -> BigInt, name -> Text, } }
    diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, amount_cents -> BigInt, } }
    diesel::joinable!(payments -> companies (company_id));
    diesel::allow_tables_to_appear_in_same_query!(companies, payments);

    #[derive(HasQuery, Queueable)]
    #[diesel(base_query = payments::table.inner_join(companies::table))]
    struct Payment {
        id: i64,
        amount_cents: i64,
        #[diesel(select_expression = companies::name)]
        company: String,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(prefix = "late_")]
    struct LatePayment {
        id: i64,
        #[diesel(select_expression = diesel::dsl::date(diesel::dsl::now), select_expression_type = diesel::dsl::date<diesel::dsl::now>)]
        day: chrono::NaiveDate,
        #[diesel(select_expression = payments::company_id.eq(companies::id))]
        is_own: bool,
    }

    fn uses() {
        // The rest of the user's code is not accused.
        let _ = payments::table.filter(payment_queue::try_count.gt(1)).select(Payment::queue_state());
        let _ = payments::table.filter(late_payment_queue::try_count.gt(1)).select(LatePayment::queue_state());
    }
}

mod embedded_row_of_another_table {
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

    fn uses() {
        // The rest of the user's code is not accused.
        let _ = payments::table.filter(payment_queue::try_count.gt(1)).select(Payment::queue_state());
    }
}

fn main() {}
