//! Rows that are made longer, with zeros behind: a product with zeros is one without them.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits};
use warpsmith::internal::{Raise, refused};
use warpsmith::run::{Memory, MemoryMut};
use warpsmith::{Error, Result};

/// `[rows, from]` as `[rows, to]`. What is long enough stays where it is; what is not, is freed behind the copy.
///
/// # Errors
/// Operand, if `given` has not so many elements; driver, if the device has no room or refuses the copy.
pub(crate) fn padded<T: DeviceRepr + ValidAsZeroBits + Send + Sync + 'static>(
    stream: &Arc<CudaStream>,
    name: &str,
    given: CudaSlice<T>,
    rows: usize,
    [from, to]: [usize; 2],
) -> Result<CudaSlice<T>> {
    if given.len() != rows * from {
        return Err(Error::operand(format!("{name} has {} elements, {} are needed", given.len(), rows * from)));
    }
    if to == from {
        return Ok(given);
    }
    let doing = |error| refused(format!("padding {name} from {from} to {to} elements a row"), error);
    let mut made = stream.alloc_zeros::<T>(rows * to).map_err(doing)?;
    let count = u32::try_from(rows).map_err(|_| Error::operand(format!("{name} has {rows} rows")))?;
    Memory::from(&given).copy_rows_to(stream, count, &mut MemoryMut::from(&mut made))?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use warpsmith::format::{Nvfp4Tensor, ScaleLayout};
    use warpsmith::run::Device;
    use warpsmith_testing::null::Null;
    use warpsmith_testing::numbers::{rng, usual_nvfp4};
    use warpsmith_tune::oracle::{Matrix, Products};

    use super::*;

    /// Through the driver's copies, which this driver makes.
    #[test]
    fn products_of_padded_weights_are_those_of_the_weights() {
        Null::driver();
        let stream = Device::open(0).unwrap().context().new_stream().unwrap();
        let (experts, hidden) = (3, 64);
        for (intermediate, to) in [(96, 128), (704, 704), (16, 64), (1856, 1856)] {
            let mut rng = rng(intermediate as u64);
            let pad = |name, given: &[u8], rows, from, to| {
                let given = stream.clone_htod(given).unwrap();
                let made = padded(&stream, name, given, rows, [from, to]).unwrap();
                stream.clone_dtoh(&made).unwrap()
            };
            let tensor = |rows, k, codes: Vec<u8>, scales: Vec<u8>| {
                Matrix::from(&Nvfp4Tensor::new(rows, k, codes, scales, ScaleLayout::Linear, 1.0).unwrap())
            };
            // Down, [E, H, I]: its rows are longer. What they are multiplied with there is 0, or anything.
            let down = usual_nvfp4(&mut rng, experts * hidden, intermediate);
            let codes = pad("codes", down.codes(), experts * hidden, intermediate / 2, to / 2);
            let scales = pad("scales", down.scales(), experts * hidden, intermediate / 16, to / 16);
            let longer = tensor(experts * hidden, to, codes, scales);
            let h: Vec<f32> = (0..to).map(|i| (i as f32 * 0.37).sin()).collect();
            let short = Matrix::new(1, intermediate, h[..intermediate].to_vec()).unwrap();
            let products = Products::new(&short, &Matrix::from(&down)).unwrap();
            let of_longer = Products::new(&Matrix::new(1, to, h).unwrap(), &longer).unwrap();
            assert_eq!((products.value(), products.magnitude()), (of_longer.value(), of_longer.magnitude()));
            // Up, [E, I, H]: each expert has more rows, whose products are 0.
            let up = usual_nvfp4(&mut rng, experts * intermediate, hidden);
            let codes = pad("codes", up.codes(), experts, intermediate * hidden / 2, to * hidden / 2);
            let scales = pad("scales", up.scales(), experts, intermediate * hidden / 16, to * hidden / 16);
            let more = tensor(experts * to, hidden, codes, scales);
            let x = Matrix::new(1, hidden, (0..hidden).map(|i| (i as f32).cos()).collect::<Vec<_>>()).unwrap();
            let (products, of_more) = (Products::new(&x, &Matrix::from(&up)), Products::new(&x, &more));
            let (products, of_more) = (products.unwrap(), of_more.unwrap());
            for (row, value) in of_more.value().iter().enumerate() {
                let (expert, row) = (row / to, row % to);
                let expected = if row < intermediate { products.value()[expert * intermediate + row] } else { 0.0 };
                assert_eq!(*value, expected, "{expert} {row}");
            }
        }
    }

    #[test]
    fn another_number_of_elements_is_refused() {
        Null::driver();
        let stream = Device::open(0).unwrap().context().new_stream().unwrap();
        let given = stream.alloc_zeros::<f32>(7).unwrap();
        let error = padded(&stream, "up: bias", given, 2, [4, 8]).unwrap_err();
        assert!(error.is_operand() && error.to_string().contains("up: bias has 7 elements, 8 are needed"), "{error}");
    }
}
