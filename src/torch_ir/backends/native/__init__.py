"""Native runtimes as backends: delegates that are verified before they are used."""
