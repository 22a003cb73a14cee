//! A table with very many columns, whose names are as long as they can be.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Migrations, Queueable};
use queueable_console::Console;

use super::hostile::strange;
use super::served::{Served, ago};
use crate::browser::{Browser, By};
use crate::db::{BIGINT, Database, LONG_TEXT};

macro_rules! wide {
    ($($column:ident)*) => {
        diesel::table! {
            consignments_of_goods_that_have_very_many_columns (id) {
                id -> BigInt,
                $($column -> Nullable<Text>,)*
            }
        }

        const DECLARED: &[&str] = &[$(stringify!($column)),*];
    };
}

// 63 letters, as many as PostgreSQL takes.
wide! {
    column_01_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_02_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_03_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_04_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_05_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_06_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_07_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_08_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_09_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_10_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_11_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_12_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_13_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_14_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_15_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_16_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_17_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_18_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_19_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_20_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_21_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_22_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_23_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_24_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_25_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_26_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_27_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_28_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
    column_29_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx column_30_with_a_name_that_is_as_long_as_a_server_lets_it_be_xx
}

use self::consignments_of_goods_that_have_very_many_columns as consignments;

#[expect(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = consignments_of_goods_that_have_very_many_columns)]
struct Consignment {
    id: i64,
}

/// With those that only the database knows, and those of the queue.
const COLUMNS: usize = 200;
const OWN: usize = 5;

fn served() -> Served {
    let database = Database::new();
    let connection = &mut database.connect();
    let declared = DECLARED.iter().map(|name| format!("{name} {LONG_TEXT}"));
    let others = (DECLARED.len() + 1..COLUMNS - OWN).map(|number| format!("other_{number} INTEGER"));
    let columns: Vec<_> = declared.chain(others).collect();
    let table = format!(
        "CREATE TABLE consignments_of_goods_that_have_very_many_columns (id {BIGINT} NOT NULL PRIMARY KEY, {})",
        columns.join(", ")
    );
    connection.batch_execute(&table).expect("the table is new");
    let migrations = Migrations::new().entity::<Consignment>().control().pollers().minutes().audit();
    connection.run_pending_migrations(migrations).expect("the table has no columns of the queue yet");
    for (id, letter) in [(1, "W"), (2, "i")] {
        let row =
            diesel::insert_into(consignments::table).values((consignments::id.eq(id), Consignment::due_at(ago(9_000))));
        row.execute(connection).expect("it is new");
        let texts: Vec<_> = DECLARED.iter().map(|name| format!("{name} = '{}'", letter.repeat(300))).collect();
        let update = format!(
            "UPDATE consignments_of_goods_that_have_very_many_columns SET {} WHERE id = {id}",
            texts.join(", ")
        );
        connection.batch_execute(&update).expect("the row is there");
    }
    let row = diesel::insert_into(consignments::table).values((consignments::id.eq(3), Consignment::due_at(ago(0))));
    row.execute(connection).expect("it is new");
    Served::with(database, Console::new().entity::<Consignment>())
}

#[test]
fn very_many_columns_with_very_long_names_can_be_used_on_a_small_screen() {
    let served = served();
    let browser = Browser::new();
    let page = |path: &str| served.address(&format!("/q/consignments_of_goods_that_have_very_many_columns{path}"));
    let last = DECLARED.last().expect("there are some");
    browser.resize(360, 740, 1);

    // All columns.
    browser.open(&page(&format!("?columns={}", DECLARED.join(","))));
    browser.see("3 rows");
    assert_eq!(browser.count(By::Css("#rows thead th")), DECLARED.len() + 2);
    assert_eq!(strange(&browser), [""; 0]);

    // The form with a field for each.
    browser.open(&page(""));
    browser.click(By::Css("form.search details:nth-of-type(2) summary"));
    browser.click(By::Css("form.search details:nth-of-type(1) summary"));
    assert_eq!(strange(&browser), [""; 0]);
    browser.choose(By::Field(&format!("How {last} is compared")), "begins with");
    browser.fill(By::Field(last), "iii");
    browser.click(By::Button("Add and search"));
    browser.see("1 row");
    browser.check("the rows of a table with many columns");

    // A row with all of them, and what would be done with it.
    browser.resize(360, 740, 1);
    browser.click(By::Link("2"));
    browser.see("Columns");
    assert_eq!(strange(&browser), [""; 0]);
    browser.click(By::Link("Stop …"));
    browser.see("The first rows");
    assert_eq!(strange(&browser), [""; 0]);
}
