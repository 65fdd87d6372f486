use super::*;
use proptest::prelude::*;

fn guard(networks: &[&str]) -> AddressGuard {
    AddressGuard::new(networks.iter().map(|n| parse_network(n).unwrap()).collect())
}

fn permits(guard: &AddressGuard, address: &str) -> bool {
    guard.permits(address.parse().unwrap())
}

#[test]
fn refused_unless_named() {
    let closed = guard(&[]);
    let open = guard(&["0.0.0.0/0", "::/0"]);
    for address in "0.0.0.0 0.1.2.3 10.0.0.5 100.64.0.1 100.127.255.255 127.0.0.1 127.9.9.9 \
         168.63.129.16 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 \
         192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.9 224.0.0.1 \
         239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::7f00:1 ::808:808 ::ffff:127.0.0.1 \
         ::ffff:10.0.0.5 64:ff9b::7f00:1 64:ff9b::a00:5 64:ff9b:1::808:808 100::1 2001::1 \
         2001:2::1 2001:10::1 2001:db8::1 2002:808:808::1 2002:7f00:1::1 3fff::1 4000::1 \
         5f00::1 fc00::1 fd12::1 fe80::1 fec0::1 ff02::1"
        .split_whitespace()
    {
        assert!(!permits(&closed, address), "{address}");
        assert!(permits(&open, address), "{address}");
    }
}

#[test]
fn public_is_permitted() {
    for address in "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 \
         198.17.255.255 198.20.0.1 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::808:808 \
         2001:200::1 2606:4700::1111 2a00:1450::1 3ffe::1"
        .split_whitespace()
    {
        assert!(permits(&guard(&[]), address), "{address}");
    }
}

#[test]
fn the_allowlist_opens_no_more_than_it_names() {
    let one = guard(&["127.0.0.0/8", "fd00:1::/32", "64:ff9b::a00:0/112"]);
    for address in [
        "127.0.0.1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "fd00:1::5",
    ] {
        assert!(permits(&one, address), "{address}");
    }
    assert!(permits(&one, "64:ff9b::a00:5"));
    for address in [
        "::1",
        "10.0.0.5",
        "fd00:2::5",
        "64:ff9b::a01:5",
        "169.254.169.254",
    ] {
        assert!(!permits(&one, address), "{address}");
    }
}

#[test]
fn networks_are_strict() {
    for text in [
        "10.0.0.0/8",
        "127.0.0.1/32",
        "::1/128",
        "fd00::/8",
        "::/0",
        "0.0.0.0/0",
    ] {
        assert!(parse_network(text).is_ok(), "{text}");
    }
    for text in [
        "",
        " 10.0.0.0/8",
        "10.0.0.0/8 ",
        "10.0.0.0 /8",
        "10.0.0.0",
        "10/8",
    ] {
        assert!(
            matches!(parse_network(text), Err(BadNetwork::Syntax(_))),
            "{text:?}"
        );
    }
    for text in [
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "010.0.0.0/8",
        "10.0.0.0/8,::1/128",
        "a/8",
    ] {
        assert!(
            matches!(parse_network(text), Err(BadNetwork::Syntax(_))),
            "{text:?}"
        );
    }
    let error = parse_network("10.1.2.3/8").unwrap_err().to_string();
    assert_eq!(
        error,
        "10.1.2.3/8 has bits set after its prefix; the network is 10.0.0.0/8"
    );
    assert!(matches!(
        parse_network("::ffff:10.0.0.0/104"),
        Err(BadNetwork::Mapped(_))
    ));
}

proptest! {
    #[test]
    fn a_mapped_address_is_judged_as_ipv4(bits in any::<u32>()) {
        let v4 = Ipv4Addr::from_bits(bits);
        let closed = AddressGuard::default();
        let expected = closed.permits(v4.into());
        prop_assert_eq!(closed.permits(v4.to_ipv6_mapped().into()), expected);
        prop_assert!(!closed.permits(v4.to_ipv6_compatible().into()));
    }

    #[test]
    fn reading_a_network_never_panics(text in "[0-9a-f:./ ]{0,24}") {
        let _ = parse_network(&text);
    }
}
