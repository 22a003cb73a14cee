//! Names of columns, of the prefix and of the module.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(status = 5)]
struct ColumnNameThatIsNoName {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(status = "a_name_of_more_than_sixty_three_bytes_is_cut_off_by_postgresql_and_mysql")]
struct ColumnNameTooLong {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(status = "sta\0tus")]
struct ColumnNameWithNul {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(status = "")]
struct EmptyColumnName {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(status = "try_count")]
struct ColumnWithADefaultName {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(status = "state", last_attempt_error_message = "State")]
struct ColumnsWithOneName {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "a_prefix_that_is_quite_a_bit_too_long_")]
struct PrefixTooLong {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = "charging")]
struct ModuleThatIsNoName {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct FieldIsAQueueColumn {
    id: i64,
    amount_cents: i64,
    status: String,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(status = "Amount_Cents")]
struct FieldIsARenamedQueueColumn {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct FieldWithAQueueColumnsColumnName {
    id: i64,
    amount_cents: i64,
    #[diesel(column_name = "status")]
    state: String,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct FieldWithARawName {
    id: i64,
    amount_cents: i64,
    #[diesel(column_name = r#status)]
    state: String,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "a_prefix_that_is_too_long_for_the_optional_columns_", periodic)]
#[queue(status = "state", next_attempt_time = "due", try_count = "tries")]
#[queue(last_attempt_time = "last", last_attempt_error_message = "error")]
struct PrefixTooLongForAnOptionalColumn {
    id: i64,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = (column_name_that_is_no_name_queue::try_count, ColumnNameThatIsNoName::queue_state());
    let _ = (column_name_too_long_queue::try_count, ColumnNameTooLong::queue_state());
    let _ = (column_name_with_nul_queue::try_count, ColumnNameWithNul::queue_state());
    let _ = (empty_column_name_queue::try_count, EmptyColumnName::queue_state());
    let _ = (column_with_a_default_name_queue::try_count, ColumnWithADefaultName::queue_state());
    let _ = (columns_with_one_name_queue::try_count, ColumnsWithOneName::queue_state());
    let _ = (prefix_too_long_queue::try_count, PrefixTooLong::queue_state());
    let _ = (module_that_is_no_name_queue::try_count, ModuleThatIsNoName::queue_state());
    let _ = (field_is_a_queue_column_queue::try_count, FieldIsAQueueColumn::queue_state());
    let _ = (field_is_a_renamed_queue_column_queue::try_count, FieldIsARenamedQueueColumn::queue_state());
    let _ = (field_with_a_queue_columns_column_name_queue::try_count, FieldWithAQueueColumnsColumnName::queue_state());
    let _ = (field_with_a_raw_name_queue::try_count, FieldWithARawName::queue_state());
    let _ =
        (prefix_too_long_for_an_optional_column_queue::try_count, PrefixTooLongForAnOptionalColumn::queue_state());
}
