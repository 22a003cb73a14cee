//! Model: the struct as Diesel reads it, and what the `#[queue(..)]` attributes say about it.

use proc_macro2::Span;
use quote::{ToTokens, format_ident};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Error, Expr, Fields, Ident, LitStr, Path, Result, Token, Type, parenthesized};

use super::types::{endless, without_self};
use crate::parse::{Attributes, COLUMNS, Written, without_quotes};

/// An entity.
pub(crate) struct Model<'a> {
    pub(crate) input: &'a DeriveInput,
    pub(crate) attributes: Attributes,
    pub(crate) table: Path,
    /// Whether `table_name` was given, so that the table certainly exists.
    pub(crate) table_is_named: bool,
    /// The columns that `primary_key` names; Diesel's default is `id`.
    pub(crate) primary_key: Vec<Ident>,
    /// Where the primary key was named: the attribute's key, or else the struct's name.
    pub(crate) primary_key_span: Span,
    /// The fields. There are none if the input is not a struct with named fields.
    pub(crate) fields: Vec<Field<'a>>,
}

/// A field of the struct.
pub(crate) struct Field<'a> {
    pub(crate) ident: &'a Ident,
    /// Its type, as those below with the struct's name in place of `Self`.
    pub(crate) ty: Type,
    /// The name of its column, and where it was given.
    pub(crate) column: Written<String>,
    pub(crate) embed: bool,
    pub(crate) select_expression: Option<(Ident, Expr)>,
    pub(crate) deserialize_as: Option<(Ident, Type)>,
    pub(crate) serialize_as: Option<(Ident, Type)>,
}

/// One column of the primary key and the type of its value.
pub(crate) struct KeyColumn {
    pub(crate) column: Ident,
    pub(crate) ty: Type,
}

impl<'a> Model<'a> {
    /// Reads the struct and Diesel's attributes on it.
    pub(crate) fn new(input: &'a DeriveInput, attributes: Attributes, errors: &mut Vec<Error>) -> Self {
        let named = DieselAttributes::parse(&input.attrs, &OLD_OF_STRUCT, errors);
        let table_is_named = named.table_name.is_some();
        let table = named.table_name.unwrap_or_else(|| default_table(&input.ident));
        let default_key = || (input.ident.span(), vec![Ident::new("id", input.ident.span())]);
        let (primary_key_span, primary_key) = named.primary_key.unwrap_or_else(default_key);
        let fields = match &input.data {
            Data::Struct(data) if matches!(data.fields, Fields::Named(_)) => {
                data.fields.iter().filter_map(|field| Field::new(field, input, errors)).collect()
            }
            _ => Vec::new(),
        };
        Model { input, attributes, table, table_is_named, primary_key, primary_key_span, fields }
    }

    /// Returns the names of the queue's columns, in the order of [`COLUMNS`], and where each was given: `None` for a
    /// default.
    pub(crate) fn column_names(&self) -> [(String, Option<Span>); 5] {
        let prefix = self.attributes.prefix.as_ref();
        std::array::from_fn(|i| match (&self.attributes.columns[i], prefix) {
            (Some(given), _) => (given.value.clone(), Some(given.span)),
            (None, Some(prefix)) => (format!("{}{}", prefix.value, COLUMNS[i]), Some(prefix.span)),
            (None, None) => (COLUMNS[i].to_owned(), None),
        })
    }

    /// Returns the name of the generated module.
    pub(crate) fn module(&self) -> Ident {
        let named = self.attributes.module.clone();
        named
            .unwrap_or_else(|| format_ident!("{}_queue", snake_case(&self.input.ident), span = self.input.ident.span()))
    }

    /// Returns the field of a column.
    pub(crate) fn field_of(&self, column: &Ident) -> Option<&Field<'a>> {
        let name = column.unraw().to_string();
        self.fields.iter().find(|field| !field.embed && field.column.value == name)
    }

    /// Tells whether the field is a part of the primary key.
    pub(crate) fn is_key(&self, field: &Field<'_>) -> bool {
        !field.embed && self.primary_key.iter().any(|column| column.unraw() == field.column.value)
    }

    /// Returns the column of `order_in_group` as it was written, and its field.
    pub(crate) fn order_in_group_field(&self) -> Option<(&Ident, &'a Ident)> {
        let column = self.attributes.order_in_group.as_ref()?;
        Some((column, self.field_of(column)?.ident))
    }

    /// Returns the primary key, unless the fields do not show the type of each of its columns.
    pub(crate) fn key(&self) -> Option<Vec<KeyColumn>> {
        let column = |column: &Ident| {
            let field = self.field_of(column).filter(|field| field.tells_column_type())?;
            let read_as = field.deserialize_as.as_ref().map(|(_, ty)| ty);
            let ty = endless(read_as.unwrap_or(&field.ty), &self.input.generics);
            let mut column = column.clone();
            // Where Diesel's derive says so too if there is no such column, so that it is said once.
            column.set_span(field.column.span);
            Some(KeyColumn { column, ty })
        };
        self.primary_key.iter().map(column).collect()
    }
}

impl<'a> Field<'a> {
    fn new(field: &'a syn::Field, entity: &DeriveInput, errors: &mut Vec<Error>) -> Option<Self> {
        let ident = field.ident.as_ref()?;
        let named = DieselAttributes::parse(&field.attrs, &OLD_OF_FIELD, errors);
        let as_type = |(key, ty): (Ident, Type)| (key, without_self(&ty, entity));
        let own_name = || Written { value: ident.unraw().to_string(), span: ident.span() };
        Some(Field {
            ident,
            ty: without_self(&field.ty, entity),
            column: named.column_name.unwrap_or_else(own_name),
            embed: named.embed,
            select_expression: named.select_expression,
            deserialize_as: named.deserialize_as.map(as_type),
            serialize_as: named.serialize_as.map(as_type),
        })
    }

    /// Tells whether the field's type is the column's, or the one type as which the column is read and written.
    fn tells_column_type(&self) -> bool {
        self.select_expression.is_none() && self.has_one_type()
    }

    /// Tells whether the column is read and written as one type.
    pub(crate) fn has_one_type(&self) -> bool {
        let text = |ty: &Option<(Ident, Type)>| ty.as_ref().map(|(_, ty)| ty.to_token_stream().to_string());
        text(&self.deserialize_as) == text(&self.serialize_as)
    }
}

/// Diesel's old attributes, which its derives take as well unless its default features are off: the name, and the item that
/// has replaced it.
const OLD_OF_STRUCT: [(&str, &str); 2] = [("table_name", "table_name = .."), ("primary_key", "primary_key(..)")];
const OLD_OF_FIELD: [(&str, &str); 1] = [("column_name", "column_name = ..")];

/// The Diesel attributes that the derive needs.
#[derive(Default)]
struct DieselAttributes {
    table_name: Option<Path>,
    primary_key: Option<(Span, Vec<Ident>)>,
    column_name: Option<Written<String>>,
    embed: bool,
    select_expression: Option<(Ident, Expr)>,
    deserialize_as: Option<(Ident, Type)>,
    serialize_as: Option<(Ident, Type)>,
}

impl DieselAttributes {
    fn parse(attributes: &[Attribute], old: &[(&str, &str)], errors: &mut Vec<Error>) -> Self {
        let mut named = DieselAttributes::default();
        for attribute in attributes {
            if let Some((name, item)) = old.iter().find(|(name, _)| attribute.path().is_ident(name)) {
                let message = format!(
                    "`#[{name}]` is an old attribute of Diesel, which the queue does not read\nhelp: write `#[diesel({item})]`"
                );
                errors.push(Error::new_spanned(attribute.path(), message));
                named.old_item(attribute);
            }
            if !attribute.path().is_ident("diesel") {
                continue;
            }
            let items = |input: ParseStream<'_>| {
                while !input.is_empty() {
                    named.item(input)?;
                    if !input.is_empty() {
                        input.parse::<Token![,]>()?;
                    }
                }
                Ok(())
            };
            errors.extend(attribute.parse_args_with(items).err());
        }
        named
    }

    /// Reads an old attribute, so that the code beside its error names the right table and columns.
    fn old_item(&mut self, attribute: &Attribute) {
        let item = without_quotes(attribute.meta.to_token_stream());
        drop((|input: ParseStream<'_>| self.item(input)).parse2(item));
    }

    /// Reads one item. If it is given twice, the last one counts, as in Diesel.
    fn item(&mut self, input: ParseStream<'_>) -> Result<()> {
        let key = input.call(Ident::parse_any)?;
        match key.to_string().as_str() {
            "table_name" => self.table_name = Some(equals(input)?),
            "column_name" => self.column_name = Some(equals_with(input, column_name)?),
            "embed" => self.embed = true,
            "deserialize_as" => self.deserialize_as = Some((key, equals(input)?)),
            "serialize_as" => self.serialize_as = Some((key, equals(input)?)),
            "primary_key" => {
                let columns;
                parenthesized!(columns in input);
                let columns = Punctuated::<_, Token![,]>::parse_terminated(&columns)?;
                self.primary_key = Some((key.span(), columns.into_iter().collect()));
            }
            "select_expression" => self.select_expression = Some((key, equals(input)?)),
            // A comma inside these does not end the item.
            "base_query" => drop(equals::<Expr>(input)?),
            "base_query_type" | "select_expression_type" | "sql_type" => drop(equals::<Type>(input)?),
            _ => {
                while !input.is_empty() && !input.peek(Token![,]) {
                    input.parse::<proc_macro2::TokenTree>()?;
                }
            }
        }
        Ok(())
    }
}

fn equals<T: syn::parse::Parse>(input: ParseStream<'_>) -> Result<T> {
    equals_with(input, T::parse)
}

fn equals_with<T>(input: ParseStream<'_>, parser: fn(ParseStream<'_>) -> Result<T>) -> Result<T> {
    input.parse::<Token![=]>()?;
    parser(input)
}

fn column_name(input: ParseStream<'_>) -> Result<Written<String>> {
    if input.peek(LitStr) {
        let literal: LitStr = input.parse()?;
        return Ok(Written { value: literal.value(), span: literal.span() });
    }
    let ident: Ident = input.parse()?;
    Ok(Written { value: ident.unraw().to_string(), span: ident.span() })
}

fn default_table(entity: &Ident) -> Path {
    format_ident!("{}s", snake_case(entity), span = entity.span()).into()
}

/// Returns the struct's name in snake case: as in Diesel, with an underscore before every capital.
fn snake_case(ident: &Ident) -> String {
    let mut name = String::new();
    for character in ident.unraw().to_string().chars() {
        if character.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(character.to_lowercase());
    }
    name
}
