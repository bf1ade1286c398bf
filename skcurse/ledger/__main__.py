"""Record all verdicts anew: ``python -m skcurse.ledger``."""

from skcurse.ledger._check import record

if __name__ == "__main__":
    print(f"Written: {record()}")
